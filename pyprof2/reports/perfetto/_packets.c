/* Packets of events, one after another, in one pass where NumPy needs a dozen for each field.

   `packets` does what `packets` of packets.py does with NumPy, which says what they are; without
   this module that one works alone, and the tests compare the two. Lengths of columns are checked
   before any is read. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

enum { MOST = 32, HEADS = 4, LONGEST = 10, WIDTH = 8, SHORT = 0x80, LEAD = 16 };

/* Bytes that stand before others; all of the array is copied, and what follows is put over it. */
typedef struct {
    char bytes[LEAD];
    Py_ssize_t size;
} Lead;

typedef struct {
    Lead before;
    Py_buffer values, present;
    int is_fixed;
    Py_ssize_t size_at;
} Field;

typedef struct {
    Lead kind;
    Py_buffer time, offsets, flows;
    Field fields[MOST];
    Py_ssize_t field_count, rows, flow_count, next;
} Events;

static char *put_varint(char *at, uint64_t value)
{
    for (; value >= SHORT; value >>= 7)
        *at++ = (char)(value | SHORT);
    *at++ = (char)value;
    return at;
}

static char *put_fixed(char *at, uint64_t value)
{
    for (int i = 0; i < WIDTH; i++)
        *at++ = (char)(value >> 8 * i);
    return at;
}

static char *put(char *at, const Lead *lead)
{
    memcpy(at, lead->bytes, LEAD);
    return at + lead->size;
}

/* A converter of arguments: bytes that are no more than `LEAD`. */
static int lead_of(PyObject *bytes, void *into)
{
    Lead *lead = into;
    char *data;
    if (PyBytes_AsStringAndSize(bytes, &data, &lead->size))
        return 0;
    if (lead->size > LEAD) {
        PyErr_SetString(PyExc_ValueError, "too many bytes before a column");
        return 0;
    }
    memcpy(lead->bytes, data, lead->size);
    return 1;
}

static uint64_t number(const Py_buffer *column, Py_ssize_t row)
{
    return ((const uint64_t *)column->buf)[row];
}

static Py_ssize_t count_of(const Py_buffer *column)
{
    return (uintptr_t)column->buf % WIDTH || column->len % WIDTH ? -1 : column->len / WIDTH;
}

/* Take the columns of events; what is taken is let go of by `let_go`, also where that fails. */
static int take(PyObject *from, Events *of)
{
    PyObject *fields;
    if (!PyArg_ParseTuple(from, "y*O&Oy*y*", &of->time, lead_of, &of->kind, &fields, &of->flows,
                          &of->offsets))
        return 0;
    of->rows = count_of(&of->time);
    of->flow_count = count_of(&of->flows);
    int fits = of->rows >= 0 && of->flow_count >= 0 && PyTuple_Check(fields) && PyTuple_Size(fields) <= MOST;
    for (Py_ssize_t i = 0; fits && i < PyTuple_Size(fields); i++) {
        Field *field = &of->fields[i];
        of->field_count = i + 1;
        if (!PyArg_ParseTuple(PyTuple_GetItem(fields, i), "O&y*z*pn", lead_of, &field->before,
                              &field->values, &field->present, &field->is_fixed, &field->size_at))
            return 0;
        fits = count_of(&field->values) == of->rows && field->size_at >= 0
               && (!field->size_at || field->size_at < field->before.size)
               && (field->present.obj == NULL || field->present.len == of->rows);
    }
    if (fits && of->flow_count) {
        fits = count_of(&of->offsets) == of->rows + 1;
        for (Py_ssize_t i = 0; fits && i < of->rows; i++)
            fits = number(&of->offsets, i) <= number(&of->offsets, i + 1);
        fits = fits && number(&of->offsets, of->rows) - number(&of->offsets, 0) == (uint64_t)of->flow_count;
    }
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return fits;
}

static void let_go(Events *of)
{
    for (Py_ssize_t i = 0; i < of->field_count; i++) {
        PyBuffer_Release(&of->fields[i].values);
        PyBuffer_Release(&of->fields[i].present);
    }
    PyBuffer_Release(&of->time);
    PyBuffer_Release(&of->offsets);
    PyBuffer_Release(&of->flows);
}

/* The most bytes that the fields of an event take. */
static Py_ssize_t most(const Events *of)
{
    Py_ssize_t found = of->kind.size;
    for (Py_ssize_t i = 0; i < of->field_count; i++)
        found += of->fields[i].before.size + LONGEST;
    return found;
}

static char *put_fields(char *at, const Events *of, Py_ssize_t row)
{
    at = put(at, &of->kind);
    for (Py_ssize_t i = 0; i < of->field_count; i++) {
        const Field *field = &of->fields[i];
        if (field->present.obj != NULL && !((const char *)field->present.buf)[row])
            continue;
        char *begin = at;
        uint64_t value = number(&field->values, row);
        at = put(at, &field->before);
        at = field->is_fixed ? put_fixed(at, value) : put_varint(at, value);
        if (field->size_at)
            begin[field->size_at] = (char)(at - begin - field->size_at - 1);
    }
    return at;
}

/* Write the next packet of events; `scratch` has room for its fields. */
static char *put_packet(char *at, Events *of, const Lead *heads, char *scratch)
{
    Py_ssize_t row = of->next++, first = 0, end = 0;
    if (of->flow_count) {
        uint64_t base = number(&of->offsets, 0);
        first = (Py_ssize_t)(number(&of->offsets, row) - base);
        end = (Py_ssize_t)(number(&of->offsets, row + 1) - base);
    }
    Py_ssize_t own = put_fields(scratch, of, row) - scratch;
    Py_ssize_t size = own + (end - first) * (heads[3].size + WIDTH);
    char inner[2 * LONGEST], *middle = put_varint(inner, number(&of->time, row)), *last;
    last = put_varint(middle, (uint64_t)size);
    at = put(at, &heads[0]);
    at = put_varint(at, (uint64_t)(heads[1].size + (last - inner) + heads[2].size + size));
    at = put(at, &heads[1]);
    memcpy(at, inner, middle - inner);
    at = put(at + (middle - inner), &heads[2]);
    memcpy(at, middle, last - middle);
    at += last - middle;
    memcpy(at, scratch, own);
    at += own;
    for (; first < end; first++)
        at = put_fixed(put(at, &heads[3]), number(&of->flows, first));
    return at;
}

static PyObject *woven(Events *events, const Lead *heads, const Py_buffer *which)
{
    if (events[0].rows + events[1].rows != which->len) {
        PyErr_SetString(PyExc_ValueError, "another number of packets");
        return NULL;
    }
    Py_ssize_t room = 0, widest = 0, around = heads[0].size + heads[1].size + heads[2].size + 3 * LONGEST;
    for (Events *of = events; of < events + 2; of++) {
        widest = most(of) > widest ? most(of) : widest;
        room += of->rows * (most(of) + around) + of->flow_count * (heads[3].size + WIDTH);
    }
    char *data = PyMem_Malloc(room + widest + 2 * LEAD), *at = data;
    if (data == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; at != NULL && i < which->len; i++) {
        Events *of = &events[((const char *)which->buf)[i] != 0];
        at = of->next < of->rows ? put_packet(at, of, heads, data + room + LEAD) : NULL;
    }
    PyObject *found = NULL;
    if (at == NULL)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    else
        found = PyBytes_FromStringAndSize(data, at - data);
    PyMem_Free(data);
    return found;
}

static PyObject *packets(PyObject *Py_UNUSED(module), PyObject *args)
{
    Lead heads[HEADS];
    Py_buffer which;
    PyObject *first, *second, *found = NULL;
    if (!PyArg_ParseTuple(args, "(O&O&O&O&)O!O!y*", lead_of, &heads[0], lead_of, &heads[1], lead_of,
                          &heads[2], lead_of, &heads[3], &PyTuple_Type, &first, &PyTuple_Type,
                          &second, &which))
        return NULL;
    Events *events = PyMem_Calloc(2, sizeof(Events));
    if (events == NULL)
        PyErr_NoMemory();
    else {
        if (take(first, &events[0]) && take(second, &events[1]))
            found = woven(events, heads, &which);
        let_go(&events[0]);
        let_go(&events[1]);
    }
    PyMem_Free(events);
    PyBuffer_Release(&which);
    return found;
}

static PyMethodDef functions[] = {
    {"packets", packets, METH_VARARGS, "heads, first, second, is_second"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_packets", "Packets of columns.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__packets(void)
{
    return PyModuleDef_Init(&definition);
}
