/* Intervals in sorted order: what is around each, in one pass where NumPy needs a dozen; and when
   events start that wait for others, each of which needs the ends before it.

   The functions are those of the same names in intervals.py, and in job/replay.py, which say what
   they return; without this module those work alone, and the tests compare the two. Columns are
   int64 and contiguous, positions of events and edges int32; results are written into columns of the
   caller's. Numbers of rows are checked before they are followed, so that no column, however wrong,
   leads out of another one. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>

enum { MOST = 7 };

typedef struct {
    Py_buffer views[MOST];
    int64_t *columns[MOST];
    Py_ssize_t counts[MOST];
    int taken;
} Columns;

static void let_go(Columns *of)
{
    while (of->taken)
        PyBuffer_Release(&of->views[--of->taken]);
}

static PyObject *refuse(Columns *of, const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    let_go(of);
    return NULL;
}

/* Take so many columns, the first ones of int32; the last one is written into, and as many of the
 * first as are to be. Of the lengths the caller says what fits. */
static int take_narrow(Columns *of, PyObject *args, int narrow, int count, int written)
{
    of->taken = 0;
    if (PyTuple_Size(args) != count) {
        refuse(of, "another number of columns");
        return 0;
    }
    for (int i = 0; i < count; i++) {
        int flags = i < written || i == count - 1 ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        Py_buffer *view = &of->views[i];
        if (PyObject_GetBuffer(PyTuple_GetItem(args, i), view, flags)) {
            let_go(of);
            return 0;
        }
        of->taken++;
        size_t size = i < narrow ? sizeof(int32_t) : sizeof(int64_t);
        if (view->len % (Py_ssize_t)size || (uintptr_t)view->buf % size) {
            refuse(of, "a column that is not of whole numbers of as many bits as are asked for");
            return 0;
        }
        of->columns[i] = view->buf;
        of->counts[i] = view->len / (Py_ssize_t)size;
    }
    return 1;
}

static int take(Columns *of, PyObject *args, int count)
{
    return take_narrow(of, args, 0, count, 0);
}

/* Whether columns from the first on are as long as each other. */
static int equal(const Columns *of, int first, int end)
{
    for (int i = first + 1; i < end; i++)
        if (of->counts[i] != of->counts[first])
            return 0;
    return 1;
}

static PyObject *done(Columns *of)
{
    let_go(of);
    return Py_NewRef(Py_None);
}

/* Each interval passes over those that later ones never ask again: all together are one pass. */
static PyObject *nearest_later_end(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 3))
        return NULL;
    if (!equal(&of, 0, 3))
        return refuse(&of, "columns of different lengths");
    const int64_t *thread = of.columns[0], *end = of.columns[1];
    int64_t *outer = of.columns[2];
    for (Py_ssize_t i = 0; i < of.counts[0]; i++) {
        int64_t j = i && thread[i] == thread[i - 1] ? i - 1 : -1;
        while (j >= 0 && end[j] <= end[i])
            j = outer[j];
        outer[i] = j;
    }
    return done(&of);
}

static PyObject *enclosing(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 5))
        return NULL;
    if (!equal(&of, 0, 5))
        return refuse(&of, "columns of different lengths");
    const int64_t *thread = of.columns[0], *end = of.columns[1], *reach = of.columns[2];
    const int64_t *outer = of.columns[3];
    int64_t *parent = of.columns[4];
    for (Py_ssize_t i = 0; i < of.counts[0]; i++) {
        int64_t j = i && thread[i] == thread[i - 1] ? i - 1 : -1;
        while (j >= 0 && end[j] < reach[i]) {
            if (outer[j] >= j)
                return refuse(&of, "an interval that is not after the one around it");
            j = outer[j];
        }
        parent[i] = j;
    }
    return done(&of);
}

/* The first row whose key and start are after those of the query, at `low` or later. */
static int64_t first_after(const int64_t *key, const int64_t *start, int64_t low, int64_t high,
                           int64_t wanted, int64_t time)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (key[middle] < wanted || (key[middle] == wanted && start[middle] <= time))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Queries mostly come in order: each is looked for from the place of the one before it. */
static PyObject *last_not_after(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 5))
        return NULL;
    if (!equal(&of, 0, 2) || !equal(&of, 2, 5))
        return refuse(&of, "columns of different lengths");
    const int64_t *key = of.columns[0], *start = of.columns[1];
    const int64_t *wanted = of.columns[2], *time = of.columns[3];
    int64_t *found = of.columns[4], count = of.counts[0], at = 0;
    for (Py_ssize_t i = 0; i < of.counts[2]; i++) {
        int64_t k = wanted[i], t = time[i], step = 1, low = at;
        if (at && (key[at - 1] > k || (key[at - 1] == k && start[at - 1] > t)))
            low = 0, step = at; /* it is before that place */
        while (step < count - low
               && (key[low + step - 1] < k || (key[low + step - 1] == k && start[low + step - 1] <= t)))
            low += step, step *= 2;
        at = first_after(key, start, low, step < count - low ? low + step : count, k, t);
        found[i] = at && key[at - 1] == k ? at - 1 : -1;
    }
    return done(&of);
}

/* Steps to the next one around, after which it pays to look up how to leap over many. */
enum { FAR = 64 };

/* For each interval one further out, so that from any of them each other one around it takes no more
 * leaps and steps than the logarithm of the depth; an outermost one has itself. NULL: no memory, or
 * an interval that is not after the one around it. */
static int64_t *leaps_of(const int64_t *outer, int64_t count)
{
    int64_t *leap = PyMem_New(int64_t, count), *depth = PyMem_New(int64_t, count);
    for (int64_t i = 0; leap != NULL && depth != NULL && i < count; i++) {
        int64_t around = outer[i];
        if (around >= i) {
            PyMem_Free(leap);
            leap = NULL;
            break;
        }
        if (around < 0) {
            depth[i] = 0;
            leap[i] = i;
            continue;
        }
        int64_t far = leap[around], farther = leap[far];
        int is_even = depth[around] - depth[far] == depth[far] - depth[farther];
        depth[i] = depth[around] + 1;
        leap[i] = is_even ? farther : around;
    }
    if (depth == NULL) {
        PyMem_Free(leap);
        leap = NULL;
    }
    PyMem_Free(depth);
    return leap;
}

/* What is around an interval ends later than it: what a leap passes over ends before its end. */
static PyObject *holder(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 4))
        return NULL;
    if (!equal(&of, 0, 2) || !equal(&of, 2, 4))
        return refuse(&of, "columns of different lengths");
    const int64_t *end = of.columns[0], *outer = of.columns[1], *time = of.columns[2];
    int64_t *found = of.columns[3], count = of.counts[0], *leap = NULL;
    const char *wrong = NULL;
    for (Py_ssize_t i = 0; i < of.counts[2] && wrong == NULL; i++) {
        int64_t j = found[i];
        if (j >= count)
            wrong = "an interval that there is not";
        for (int64_t steps = 0; wrong == NULL && j >= 0 && end[j] <= time[i]; steps++) {
            if (outer[j] >= j || (steps == FAR && leap == NULL
                                  && (leap = leaps_of(outer, count)) == NULL))
                wrong = "an interval that is not after the one around it";
            else if (leap != NULL && leap[j] != j && end[leap[j]] <= time[i])
                j = leap[j];
            else
                j = outer[j];
        }
        found[i] = j < 0 ? -1 : j;
    }
    PyMem_Free(leap);
    return wrong != NULL ? refuse(&of, wrong) : done(&of);
}

/* `found` is -2 where it is not known yet. Each row is gone through twice, whatever the order. */
static PyObject *nearest_marked(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 2))
        return NULL;
    if (!equal(&of, 0, 2))
        return refuse(&of, "columns of different lengths");
    const int64_t *parent = of.columns[0];
    int64_t *found = of.columns[1], count = of.counts[0], left = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t at = i, known;
        while (at >= 0 && found[at] == -2) {
            if (parent[at] >= count || left-- <= 0)
                return refuse(&of, "parents that go round in circles, or that there are not");
            at = parent[at];
        }
        known = at < 0 ? -1 : found[at];
        for (at = i; at >= 0 && found[at] == -2; at = parent[at])
            found[at] = known;
    }
    return done(&of);
}

/* The first interval that begins inside of another one and ends after it: its row, or -1. */
static PyObject *first_overlap(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take(&of, args, 5))
        return NULL;
    if (!equal(&of, 0, 4) || of.counts[4] != 1)
        return refuse(&of, "columns of different lengths");
    const int64_t *thread = of.columns[0], *start = of.columns[1], *end = of.columns[2];
    const int64_t *outer = of.columns[3];
    int64_t *found = of.columns[4];
    found[0] = -1;
    for (Py_ssize_t i = 0; found[0] < 0 && i < of.counts[0]; i++) {
        int64_t j = i && thread[i] == thread[i - 1] ? i - 1 : -1;
        while (j >= 0 && end[j] < end[i]) {
            if (end[j] > start[i])
                found[0] = i;
            if (outer[j] >= j)
                return refuse(&of, "an interval that is not after the one around it");
            j = outer[j];
        }
    }
    return done(&of);
}

/* Times are added as if they had no sign: those of a damaged recording may be of any size. */
static int64_t sum(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

static const char none_there[] = "a column of events or edges that there are not";

/* Whether an event has edges that there are, from events that there are. */
static int has_edges(const int32_t *first, const int32_t *source, int64_t event, int64_t count,
                     int64_t edges)
{
    if (first[event] < 0 || first[event + 1] > edges)
        return 0;
    for (int32_t at = first[event]; at < first[event + 1]; at++)
        if (source[at] < 0 || source[at] >= count)
            return 0;
    return 1;
}

/* Into `times` go ends, where bases were; into `binding`, if it has rows, the edge of each. */
static PyObject *replay(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take_narrow(&of, args, 4, 7, 1))
        return NULL;
    int32_t *binding = (int32_t *)of.columns[0];
    const int32_t *order = (int32_t *)of.columns[1], *first = (int32_t *)of.columns[2];
    const int32_t *source = (int32_t *)of.columns[3];
    const int64_t *lag = of.columns[4], *duration = of.columns[5];
    int64_t *end = of.columns[6];
    Py_ssize_t count = of.counts[1], edges = of.counts[3];
    if (of.counts[2] != count + 1 || of.counts[4] != edges || !equal(&of, 5, 7)
        || of.counts[6] != count || (of.counts[0] != 0 && of.counts[0] != count))
        return refuse(&of, "columns of different lengths");
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t event = order[i], edge = -1;
        if (event < 0 || event >= count || !has_edges(first, source, event, count, edges))
            return refuse(&of, none_there);
        int64_t best = end[event];
        for (int32_t at = first[event]; at < first[event + 1]; at++) {
            int64_t time = sum(end[source[at]], lag[at]);
            if (edge < 0 || time > best)
                best = time, edge = at;
        }
        end[event] = sum(best, duration[event]);
        if (of.counts[0])
            binding[event] = edge;
    }
    return done(&of);
}

static PyObject *recorded_lags(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take_narrow(&of, args, 2, 5, 0))
        return NULL;
    const int32_t *first = (int32_t *)of.columns[0], *source = (int32_t *)of.columns[1];
    const int64_t *start = of.columns[2], *end = of.columns[3];
    int64_t *lag = of.columns[4];
    Py_ssize_t count = of.counts[2], edges = of.counts[1];
    if (of.counts[0] != count + 1 || of.counts[3] != count || of.counts[4] != edges)
        return refuse(&of, "columns of different lengths");
    for (Py_ssize_t event = 0; event < count; event++) {
        if (!has_edges(first, source, event, count, edges))
            return refuse(&of, none_there);
        int32_t carrier = first[event];
        for (int32_t at = carrier; at < first[event + 1]; at++)
            if (end[source[at]] > end[source[carrier]])
                carrier = at;
        for (int32_t at = first[event]; at < first[event + 1]; at++) {
            int64_t over = (int64_t)((uint64_t)start[event] - (uint64_t)end[source[at]]);
            lag[at] = at == carrier || over < 0 ? over : 0;
        }
    }
    return done(&of);
}

/* `found` begins with an event, and gets the sources of the edges back from it, then -1 as far as
 * there is room. */
static PyObject *way_back(PyObject *Py_UNUSED(module), PyObject *args)
{
    Columns of;
    if (!take_narrow(&of, args, 3, 3, 0))
        return NULL;
    const int32_t *binding = (int32_t *)of.columns[0], *source = (int32_t *)of.columns[1];
    int32_t *found = (int32_t *)of.columns[2];
    for (Py_ssize_t i = 1; i < of.counts[2]; i++) {
        int32_t event = found[i - 1], edge = -1;
        if (event >= of.counts[0])
            return refuse(&of, none_there);
        if (event >= 0)
            edge = binding[event];
        if (edge >= of.counts[1])
            return refuse(&of, none_there);
        found[i] = edge < 0 ? -1 : source[edge];
    }
    return done(&of);
}

static PyMethodDef functions[] = {
    {"nearest_later_end", nearest_later_end, METH_VARARGS, "thread, end, outer"},
    {"enclosing", enclosing, METH_VARARGS, "thread, end, reach, outer, parent"},
    {"last_not_after", last_not_after, METH_VARARGS, "key, start, wanted, time, found"},
    {"holder", holder, METH_VARARGS, "end, outer, time, found"},
    {"nearest_marked", nearest_marked, METH_VARARGS, "parent, found"},
    {"first_overlap", first_overlap, METH_VARARGS, "thread, start, end, outer, found"},
    {"replay", replay, METH_VARARGS, "binding, order, first, source, lag, duration, times"},
    {"recorded_lags", recorded_lags, METH_VARARGS, "first, source, start, end, lag"},
    {"way_back", way_back, METH_VARARGS, "binding, source, found"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_nest", "Intervals around others, and events after others.", 0, functions, slots, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit__nest(void)
{
    return PyModuleDef_Init(&definition);
}
