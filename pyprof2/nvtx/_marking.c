/* The compiled way of marking an op: what `OpMode.__torch_dispatch__` (ops.py) does when all is as
   it nearly always is, with the same ranges as result.

   Nothing of torch is linked or included: tensors are asked for their attributes, as from Python.
   What is not the common case is left to the code in Python: either the whole call, before
   anything was done (`in_python`), or the opening of its range (`begin_in_python`). So this may be
   narrower than that code, and must never decide otherwise.

   Whatever is called may let another thread run, which may forget sites and ops: each object is
   held while it is used. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#define NO_TASK (-1)
#define LOOK_AFTER (1 << 12) /* as in pairing.py */

/* -- names ---------------------------------------------------------------------------------- */

#define NAMES(_)                                                                                   \
    _(backward_site) _(begin) _(device) _(dtype) _(find) _(forward_site) _(is_contiguous)          \
    _(message) _(payload) _(_push_copied) _(_sequence_nr) _(shape) _(state) _(stride) _(unknown)

#define DECLARE(name) PyObject *name;
typedef struct {
    NAMES(DECLARE)
} Names;

/* Texts that are interned, for as long as the process runs: they are looked up for every op. */
static Names names;

static int make_names(void)
{
#define MAKE(name)                                                                                 \
    if (!names.name && !(names.name = PyUnicode_InternFromString(#name)))                          \
        return -1;
    NAMES(MAKE)
    return 0;
}

/* -- small things --------------------------------------------------------------------------- */

/* Return what a function without arguments returns; it may be replaced while it runs. */
static PyObject *result_of(PyObject *function)
{
    Py_INCREF(function);
    PyObject *value = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    return value;
}

/* Return whether a function without arguments returns what is true; -1: an error. */
static int says(PyObject *function)
{
    PyObject *value = result_of(function);
    int found = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return found;
}

/* Put the number that a function without arguments returns into `number`. */
static int ask_number(PyObject *function, long long *number)
{
    PyObject *value = result_of(function);
    if (!value)
        return -1;
    *number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Return what a dictionary has for a key, as a reference of one's own; NULL without an error: it
   has nothing. */
static PyObject *look_up(PyObject *dictionary, PyObject *key)
{
    return Py_XNewRef(PyDict_GetItemWithError(dictionary, key));
}

/* -- whether a call is a known one ---------------------------------------------------------- */

/* What is expected of a value: of a tensor `dtype` and the rest, of another one `equal`. */
typedef struct {
    Py_ssize_t index;
    PyObject *kind, *dtype, *shape, *strides, *equal;
} Expected;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;   /* of values */
    Py_ssize_t tensors; /* of them; they stand first in `expected` */
    Py_ssize_t others;
    Expected *expected;
    PyObject *device; /* of the first tensor */
} Matcher;

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void matcher_dealloc(Matcher *self)
{
    for (Py_ssize_t at = 0; self->expected && at < self->tensors + self->others; at++) {
        Expected *item = self->expected + at;
        Py_XDECREF(item->kind);
        Py_XDECREF(item->dtype);
        Py_XDECREF(item->shape);
        Py_XDECREF(item->strides);
        Py_XDECREF(item->equal);
    }
    PyMem_Free(self->expected);
    Py_XDECREF(self->device);
    free_object((PyObject *)self);
}

static int is_tuple(PyObject *given)
{
    if (!PyTuple_Check(given))
        PyErr_SetString(PyExc_TypeError, "what is expected of a value is a tuple");
    return PyTuple_Check(given);
}

/* Take what is expected of a tensor: (index, class, dtype, shape, strides or None). */
static int take_tensor(Expected *item, PyObject *given)
{
    PyObject *strides;
    if (!is_tuple(given) || !PyArg_ParseTuple(given, "nOOOO", &item->index, &item->kind,
                                              &item->dtype, &item->shape, &strides)) {
        memset(item, 0, sizeof *item); /* what was read is not ours */
        return -1;
    }
    Py_INCREF(item->kind);
    Py_INCREF(item->dtype);
    Py_INCREF(item->shape);
    item->strides = strides == Py_None ? NULL : Py_NewRef(strides);
    return 0;
}

/* Take what is expected of another value: (index, class, whether that is all, value). */
static int take_other(Expected *item, PyObject *given)
{
    PyObject *equal;
    int is_by_type;
    if (!is_tuple(given) ||
        !PyArg_ParseTuple(given, "nOpO", &item->index, &item->kind, &is_by_type, &equal)) {
        memset(item, 0, sizeof *item);
        return -1;
    }
    Py_INCREF(item->kind);
    item->equal = is_by_type ? NULL : Py_NewRef(equal);
    return 0;
}

static int matcher_fill(Matcher *self, PyObject *tensors, PyObject *others)
{
    self->tensors = PyList_Size(tensors);
    self->others = PyList_Size(others);
    self->expected = PyMem_Calloc((size_t)(self->tensors + self->others) + 1, sizeof(Expected));
    if (!self->expected) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < self->tensors + self->others; at++) {
        Expected *item = self->expected + at;
        int is_tensor = at < self->tensors;
        /* Held, and perhaps no longer there: to convert a number may change the lists. */
        PyObject *given = Py_XNewRef(is_tensor ? PyList_GetItem(tensors, at)
                                               : PyList_GetItem(others, at - self->tensors));
        int failed = !given || (is_tensor ? take_tensor(item, given) : take_other(item, given));
        Py_XDECREF(given);
        if (failed)
            return -1;
        if (item->index < 0 || item->index >= self->count) {
            PyErr_SetString(PyExc_IndexError, "a value that a call does not have");
            return -1;
        }
    }
    return 0;
}

static PyObject *matcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *tensors, *others, *device;
    Py_ssize_t count;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "nO!O!O", &count, &PyList_Type, &tensors, &PyList_Type, &others,
                          &device))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Matcher *self = (Matcher *)allocate(type, 0);
    if (!self)
        return NULL;
    self->count = count;
    self->device = Py_NewRef(device);
    if (matcher_fill(self, tensors, others)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyTypeObject *matcher_type;

/* Return whether an attribute of a tensor equals what is expected; -1: an error. */
static int attribute_equals(PyObject *tensor, PyObject *name, PyObject *expected)
{
    PyObject *value = PyObject_GetAttr(tensor, name);
    int same = value ? PyObject_RichCompareBool(value, expected, Py_EQ) : -1;
    Py_XDECREF(value);
    return same;
}

/* Return whether a tensor has the strides that are expected; -1: an error. */
static int strides_match(PyObject *tensor, PyObject *strides)
{
    PyObject *name = strides ? names.stride : names.is_contiguous;
    PyObject *value = PyObject_CallMethodObjArgs(tensor, name, NULL);
    int same = !value    ? -1
               : strides ? PyObject_RichCompareBool(value, strides, Py_EQ)
                         : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return same;
}

static int tensor_matches(PyObject *value, const Expected *item)
{
    if ((PyObject *)Py_TYPE(value) != item->kind)
        return 0;
    PyObject *dtype = PyObject_GetAttr(value, names.dtype);
    Py_XDECREF(dtype); /* there is one object for each, and torch holds it */
    if (dtype != item->dtype)
        return dtype ? 0 : -1;
    int same = attribute_equals(value, names.shape, item->shape);
    return same > 0 ? strides_match(value, item->strides) : same;
}

static int other_matches(PyObject *value, const Expected *item)
{
    if ((PyObject *)Py_TYPE(value) != item->kind)
        return 0;
    if (!item->equal)
        return 1;
    /* Not `RichCompareBool`, for which what is not a number equals itself. */
    PyObject *same = PyObject_RichCompare(value, item->equal, Py_EQ);
    int found = same ? PyObject_IsTrue(same) : -1;
    Py_XDECREF(same);
    return found;
}

/* Return whether the tensors of a call are as expected; -1: an error. */
static int tensors_match(const Matcher *self, PyObject *values)
{
    int same = 1;
    for (Py_ssize_t at = 0; same > 0 && at < self->tensors; at++) {
        const Expected *item = self->expected + at;
        same = tensor_matches(PyTuple_GetItem(values, item->index), item);
    }
    if (same > 0 && self->tensors) {
        PyObject *first = PyTuple_GetItem(values, self->expected->index);
        same = attribute_equals(first, names.device, self->device);
    }
    if (same < 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear(); /* a ragged or sparse one, where there was a plain one */
        return 0;
    }
    return same;
}

/* Return whether a call with these values is the one that is expected; -1: an error. */
static int matcher_matches(const Matcher *self, PyObject *values)
{
    if (PyTuple_Size(values) != self->count)
        return 0;
    int same = tensors_match(self, values);
    for (Py_ssize_t at = 0; same > 0 && at < self->others; at++) {
        const Expected *item = self->expected + self->tensors + at;
        same = other_matches(PyTuple_GetItem(values, item->index), item);
    }
    return same;
}

static PyObject *matcher_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *values;
    if (keywords || !PyArg_ParseTuple(args, "O!", &PyTuple_Type, &values)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a matcher takes a tuple of values");
        return NULL;
    }
    int same = matcher_matches((Matcher *)self, values);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

static PyType_Slot matcher_slots[] = {
    {Py_tp_doc, (void *)"Says whether a call is the one that it was made of."},
    {Py_tp_new, (void *)matcher_new},
    {Py_tp_dealloc, (void *)matcher_dealloc},
    {Py_tp_call, (void *)matcher_call},
    {0, NULL},
};

static PyType_Spec matcher_spec = {
    "pyprof2.nvtx._marking.Matcher", sizeof(Matcher), 0, Py_TPFLAGS_DEFAULT, matcher_slots,
};

/* -- records ---------------------------------------------------------------------------------

   The bases of classes in Python, whose attributes are read for every op. As members of a struct
   they are found without looking for them. */

#define OP_FIELDS(_, K) _(K, collective) _(K, detaches) _(K, lists) _(K, marked) _(K, run)
#define VARIANT_FIELDS(_, K) _(K, matches) _(K, message) _(K, plain)
#define STEP_FIELDS(_, K) _(K, follower) _(K, variant)
#define SITE_FIELDS(_, K) _(K, forward) _(K, step)
#define FORWARD_FIELDS(_, K) _(K, accumulate) _(K, backward)
#define SCOPE_FIELDS(_, K) _(K, is_optimizer) _(K, sites)
#define STATE_FIELDS(_, K)                                                                         \
    _(K, aliases) _(K, attributes) _(K, function) _(K, is_alone) _(K, last_backward)               \
    _(K, last_forward) _(K, next_nr) _(K, nodes) _(K, open) _(K, payload_base) _(K, scope)         \
    _(K, task) _(K, unsure)

#define DECLARE_IN(K, name) PyObject *name;
#define VISIT_IN(K, name) Py_VISIT(((K *)self)->name);
#define CLEAR_IN(K, name) Py_CLEAR(((K *)self)->name);
#define MEMBER_OF(K, name) {#name, T_OBJECT_EX, offsetof(K, name), 0, NULL},

#define RECORD(K, FIELDS)                                                                          \
    typedef struct {                                                                               \
        PyObject_HEAD                                                                              \
        FIELDS(DECLARE_IN, K)                                                                      \
    } K;                                                                                           \
    static PyTypeObject *K##_type;                                                                 \
    static int K##_traverse(PyObject *self, visitproc visit, void *arg)                            \
    {                                                                                              \
        FIELDS(VISIT_IN, K)                                                                        \
        Py_VISIT(Py_TYPE(self));                                                                   \
        return 0;                                                                                  \
    }                                                                                              \
    static int K##_clear(PyObject *self)                                                           \
    {                                                                                              \
        FIELDS(CLEAR_IN, K)                                                                        \
        return 0;                                                                                  \
    }                                                                                              \
    static void K##_dealloc(PyObject *self)                                                        \
    {                                                                                              \
        PyObject_GC_UnTrack(self);                                                                 \
        K##_clear(self);                                                                           \
        free_object(self);                                                                         \
    }                                                                                              \
    static PyMemberDef K##_members[] = {FIELDS(MEMBER_OF, K){NULL, 0, 0, 0, NULL}};                \
    static PyType_Slot K##_slots[] = {                                                             \
        {Py_tp_dealloc, (void *)K##_dealloc}, {Py_tp_traverse, (void *)K##_traverse},              \
        {Py_tp_clear, (void *)K##_clear},     {Py_tp_members, K##_members},                        \
        {0, NULL},                                                                                 \
    };                                                                                             \
    static PyType_Spec K##_spec = {                                                                \
        "pyprof2.nvtx._marking." #K, sizeof(K), 0,                                                 \
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, K##_slots,                  \
    };

RECORD(Op, OP_FIELDS)
RECORD(Variant, VARIANT_FIELDS)
RECORD(Step, STEP_FIELDS)
RECORD(Site, SITE_FIELDS)
RECORD(ForwardOp, FORWARD_FIELDS)
RECORD(Scope, SCOPE_FIELDS)
RECORD(ThreadState, STATE_FIELDS)

/* Return an attribute as a reference of one's own; NULL: it has none, or nobody gave it a value. */
static PyObject *held(PyObject *value)
{
    if (!value)
        PyErr_SetString(PyExc_TypeError, "a record without one of its attributes");
    return Py_XNewRef(value);
}

/* Return whether an object is a record of a kind; an error if it is not. */
static int is_record(PyObject *object, PyTypeObject *kind)
{
    if (object && PyObject_TypeCheck(object, kind))
        return 1;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a record of another kind is wanted");
    return 0;
}

/* The same, of an attribute of a record: a reference of one's own. */
static PyObject *held_record(PyObject *value, PyTypeObject *kind)
{
    return is_record(value, kind) ? Py_NewRef(value) : NULL;
}

/* Return whether an attribute is true; -1: an error. */
static int flag(PyObject *value)
{
    if (value == Py_True || value == Py_False)
        return value == Py_True;
    PyObject *mine = held(value);
    int found = mine ? PyObject_IsTrue(mine) : -1;
    Py_XDECREF(mine);
    return found;
}

/* Put the number that an attribute is into `number`. */
static int to_number(PyObject *value, long long *number)
{
    *number = value ? PyLong_AsLongLong(value) : -1;
    if (!value)
        held(value);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Give an attribute another value. */
static void set_field(PyObject **field, PyObject *value)
{
    PyObject *before = *field;
    *field = Py_NewRef(value);
    Py_XDECREF(before);
}

/* -- the mode ------------------------------------------------------------------------------- */

/* The attributes of an `OpMode` have these places, so they are read from here as well. */
#define FIELDS(_)                                                                                  \
    _(home) _(_catalog) _(_ops) _(_local) _(_place) _(_push) _(_pop) _(_domain) _(_in_python)      \
    _(_run_odd) _(_copied) _(_note_nodes) _(_current_node) _(_current_task) _(_next_sequence_nr)              \
    _(_grad_enabled) _(_function_mode_enabled) _(_mode_count) _(_is_called) _(_no_sequence)        \
    _(_accumulate_grad)

typedef struct {
    PyObject_HEAD
    char active, has_source;
    FIELDS(DECLARE)
} Marker;

static int marker_traverse(Marker *self, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT(self->name);
    FIELDS(VISIT)
    Py_VISIT(Py_TYPE((PyObject *)self));
    return 0;
}

static int marker_clear(Marker *self)
{
#define CLEAR(name) Py_CLEAR(self->name);
    FIELDS(CLEAR)
    return 0;
}

/* Set an attribute, but let none be deleted: a mode may be in use, and relies on them. */
static int marker_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    if (value)
        return PyObject_GenericSetAttr(self, name, value);
    PyErr_SetString(PyExc_AttributeError, "attributes of a mode cannot be deleted");
    return -1;
}

static void marker_dealloc(Marker *self)
{
    PyObject_GC_UnTrack(self);
    marker_clear(self);
    free_object((PyObject *)self);
}

/* A call: the op, and what it was called with; `kwargs` is NULL where there are none. */
typedef struct {
    Marker *mode;
    Op *op;
    PyObject *args, *kwargs;
    ThreadState *state;
} Call;

/* Return the frame that called the op, borrowed: C has none of its own. */
static PyObject *caller(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    return frame ? frame : Py_None;
}

/* Return what is known of a function, as a reference of one's own; NULL without an error: it was
   not met before. */
static PyObject *known_op(const Marker *self, PyObject *func)
{
    PyObject *key = PyLong_FromVoidPtr(func);
    PyObject *found = key ? look_up(self->_ops, key) : NULL;
    Py_XDECREF(key);
    if (found && !is_record(found, Op_type))
        Py_CLEAR(found);
    return found;
}

/* Return what tells calls at one place apart, beside values: the op, with names of arguments. */
static PyObject *key_of(const Call *call)
{
    if (!call->kwargs)
        return Py_NewRef((PyObject *)call->op);
    PyObject *key = NULL, *name, *value;
    Py_ssize_t size;
    do { /* as in `flatten` */
        Py_XDECREF(key);
        size = 2 + PyDict_Size(call->kwargs);
        if (!(key = PyTuple_New(size)))
            return NULL;
    } while (size != 2 + PyDict_Size(call->kwargs));
    PyTuple_SetItem(key, 0, Py_NewRef((PyObject *)call->op));
    PyTuple_SetItem(key, 1, Py_NewRef(Py_None));
    Py_ssize_t at = 0;
    for (Py_ssize_t index = 2; PyDict_Next(call->kwargs, &at, &name, &value); index++)
        PyTuple_SetItem(key, index, Py_NewRef(name));
    return key;
}

static int is_list(PyObject *value)
{
    return PyList_CheckExact(value) || PyTuple_CheckExact(value);
}

/* Put a value into `values` from `at` on, or count the places it takes where there are none. */
static Py_ssize_t put(PyObject *values, Py_ssize_t at, PyObject *value, int lists)
{
    if (!lists || !is_list(value)) {
        if (values)
            PyTuple_SetItem(values, at, Py_NewRef(value));
        return at + 1;
    }
    Py_ssize_t size = PySequence_Size(value);
    if (!values)
        return at + 1 + size;
    PyObject *length = PyLong_FromSsize_t(size);
    if (!length)
        return -1;
    PyTuple_SetItem(values, at++, length);
    for (Py_ssize_t index = 0; index < size; index++) {
        PyObject *item = PyList_CheckExact(value) ? PyList_GetItem(value, index)
                                                  : PyTuple_GetItem(value, index);
        PyTuple_SetItem(values, at++, Py_NewRef(item));
    }
    return at;
}

/* Do with all values of a call what `put` does with one. */
static Py_ssize_t put_all(const Call *call, PyObject *values, int lists)
{
    PyObject *name, *value;
    Py_ssize_t at = 0, position = 0;
    for (Py_ssize_t index = 0; at >= 0 && index < PyTuple_Size(call->args); index++)
        at = put(values, at, PyTuple_GetItem(call->args, index), lists);
    while (at >= 0 && call->kwargs && PyDict_Next(call->kwargs, &position, &name, &value))
        at = put(values, at, value, lists);
    return at;
}

/* Return what `Op.flatten` returns. A new tuple may have garbage collected first (before Python
   3.12), and then what runs may change the lists; between the last two rounds nothing runs. */
static PyObject *flatten(const Call *call)
{
    int lists = flag(call->op->lists);
    if (lists < 0)
        return NULL;
    if (!call->kwargs && !lists)
        return Py_NewRef(call->args);
    PyObject *values = NULL;
    Py_ssize_t size;
    do {
        Py_XDECREF(values);
        size = put_all(call, NULL, lists);
        values = PyTuple_New(size);
    } while (values && put_all(call, NULL, lists) != size);
    if (values && put_all(call, values, lists) < 0)
        Py_CLEAR(values);
    return values;
}

/* -- where a call is made ------------------------------------------------------------------- */

/* Note that an op has made one node, as it nearly always has; return its payload. */
static PyObject *note_node(ThreadState *state, PyObject *forward, PyObject *number)
{
    PyObject *first = held(state->next_nr), *nodes = held(state->nodes), *payload = NULL;
    PyObject *base = held(state->payload_base);
    if (first && nodes && base && !PyDict_SetItem(nodes, first, forward)) {
        set_field(&state->next_nr, number);
        set_field(&state->last_forward, forward);
        payload = PyNumber_Add(base, first);
    }
    Py_XDECREF(base);
    Py_XDECREF(nodes);
    Py_XDECREF(first);
    return payload;
}

/* Return whether an op made one node and nothing is odd; -1: an error. */
static int made_one(const Call *call, long long first)
{
    PyObject *nodes = call->state->nodes;
    Py_ssize_t size = nodes ? PyDict_Size(nodes) : 0;
    if (size <= 0 || first % LOOK_AFTER == 0)
        return size < 0 ? -1 : 0; /* before another one is noted, the others are looked after */
    return says(call->mode->_grad_enabled);
}

/* Return the payload of an op, and note the nodes that were made; as `note_nodes`, pairing.py. */
static PyObject *payload_of(const Call *call, PyObject *forward)
{
    ThreadState *state = call->state;
    PyObject *payload = NULL, *number = result_of(call->mode->_next_sequence_nr);
    long long first, now;
    if (!number || to_number(state->next_nr, &first) || to_number(number, &now))
        goto done;
    if (state->unsure == Py_None && state->function == Py_None) {
        int one = now == first + 1 ? made_one(call, first) : 0;
        if (one < 0)
            goto done;
        if (now == first || one) {
            payload = one ? note_node(state, forward, number) : Py_NewRef(call->mode->_no_sequence);
            goto done;
        }
    }
    payload = PyObject_CallFunctionObjArgs(call->mode->_note_nodes, state, forward, caller(), NULL);
done:
    Py_XDECREF(number);
    return payload;
}

/* Return the key of a call with the place where it is made, which is put into `place`. */
static PyObject *key_with_place(const Call *call, PyObject **place)
{
    *place = NULL;
    PyObject *key = key_of(call);
    if (!key || !call->mode->has_source) {
        *place = key ? Py_NewRef(Py_None) : NULL;
        return key;
    }
    PyObject *open = held(call->state->open), *both = NULL;
    if (open)
        *place = PyObject_CallFunctionObjArgs(call->mode->_place, caller(), open, NULL);
    Py_XDECREF(open);
    if (*place)
        both = *place == Py_None ? Py_NewRef(key) : PyTuple_Pack(2, key, *place);
    Py_DECREF(key);
    return both;
}

/* Return the site of an op in a scope, and put its payload into `payload`. */
static PyObject *site_in_scope(const Call *call, PyObject *scope, PyObject **payload)
{
    PyObject *place, *key = key_with_place(call, &place), *site = NULL, *forward = NULL;
    PyObject *sites = key ? held(((Scope *)scope)->sites) : NULL;
    if (sites)
        site = look_up(sites, key);
    if (sites && !site && !PyErr_Occurred())
        site = PyObject_CallMethodObjArgs(call->mode->_catalog, names.forward_site, scope, key,
                                          call->op, place, NULL);
    if (site && is_record(site, Site_type))
        forward = held(((Site *)site)->forward);
    *payload = forward ? payload_of(call, forward) : NULL;
    if (!*payload)
        Py_CLEAR(site);
    Py_XDECREF(forward);
    Py_XDECREF(sites);
    Py_XDECREF(place);
    Py_XDECREF(key);
    return site;
}

/* Return the payload of a node's forward op, which the home thread noted. */
static PyObject *payload_of_node(const ThreadState *home, PyObject *number)
{
    PyObject *payload = NULL, *base = held(home->payload_base);
    PyObject *aliases = base ? held(home->aliases) : NULL;
    if (aliases) {
        PyObject *alias = look_up(aliases, number);
        if (alias || !PyErr_Occurred())
            payload = PyNumber_Add(base, alias ? alias : number);
        Py_XDECREF(alias);
    }
    Py_XDECREF(aliases);
    Py_XDECREF(base);
    return payload;
}

/* Return the forward op of what adds up a gradient: that of the node before. */
static PyObject *accumulated(const Call *call)
{
    PyObject *forward = held(call->state->last_backward);
    if (forward == Py_None) {
        Py_DECREF(forward);
        forward = PyObject_GetAttr(call->mode->_catalog, names.unknown);
    }
    return forward;
}

/* Return the forward op of the node with a number, put its payload into `payload` and whether it
   adds up a gradient into `accumulates`; NULL without an error: it takes a closer look. */
static PyObject *owner_of(const Call *call, PyObject *number, PyObject **payload, int *accumulates)
{
    PyObject *forward = NULL, *nodes = NULL;
    ThreadState *home = (ThreadState *)Py_NewRef(call->mode->home);
    if (is_record((PyObject *)home, ThreadState_type))
        nodes = held(home->nodes);
    if (nodes)
        forward = look_up(nodes, number);
    Py_XDECREF(nodes);
    int alone = forward ? flag(home->is_alone) : 0;
    *accumulates = 0;
    if (alone > 0) {
        *payload = payload_of_node(home, number);
    } else {
        Py_CLEAR(forward);
        if (!PyErr_Occurred())
            *accumulates = PyObject_RichCompareBool(number, call->mode->_accumulate_grad, Py_EQ);
        if (*accumulates > 0) {
            *payload = Py_NewRef(call->mode->_no_sequence);
            forward = accumulated(call);
        }
    }
    if (forward && (!*payload || !is_record(forward, ForwardOp_type)))
        Py_CLEAR(forward);
    Py_DECREF((PyObject *)home);
    return forward;
}

/* Return the site of an op that a node runs, and put its payload into `payload`; NULL without an
   error: it takes a closer look, and nothing was done. */
static PyObject *site_in_node(const Call *call, PyObject *node, PyObject **payload)
{
    int accumulates;
    PyObject *number = PyObject_CallMethodObjArgs(node, names._sequence_nr, NULL), *site = NULL;
    PyObject *forward = number ? owner_of(call, number, payload, &accumulates) : NULL;
    Py_XDECREF(number);
    if (!forward)
        return NULL;
    const ForwardOp *record = (ForwardOp *)forward;
    PyObject *sites = held(accumulates ? record->accumulate : record->backward);
    PyObject *key = sites ? key_of(call) : NULL;
    set_field(&call->state->last_backward, forward);
    if (key)
        site = look_up(sites, key);
    if (key && !site && !PyErr_Occurred())
        site = PyObject_CallMethodObjArgs(call->mode->_catalog, names.backward_site, forward, sites,
                                          key, call->op, NULL);
    Py_XDECREF(key);
    Py_XDECREF(sites);
    Py_DECREF(forward);
    return site;
}

/* Return the site of a call, and put its payload into `payload`; NULL without an error: it takes
   a closer look, and nothing was done. */
static PyObject *site_of(const Call *call, PyObject **payload)
{
    const Marker *mode = call->mode;
    long long task, own;
    if (ask_number(mode->_current_task, &task) || to_number(call->state->task, &own))
        return NULL;
    if (task != NO_TASK && task != own) {
        int with_grad = says(mode->_grad_enabled);
        PyObject *node = with_grad ? NULL : result_of(mode->_current_node);
        PyObject *site = node && node != Py_None ? site_in_node(call, node, payload) : NULL;
        Py_XDECREF(node);
        return site;
    }
    PyObject *scope = held_record(call->state->scope, Scope_type), *site = NULL;
    int odd = scope ? flag(((Scope *)scope)->is_optimizer) : -1;
    if (odd > 0)
        odd = says(mode->_grad_enabled); /* perhaps its closure */
    if (!odd)
        site = site_in_scope(call, scope, payload);
    Py_XDECREF(scope);
    return site;
}

/* -- the range of a call -------------------------------------------------------------------- */

/* Return whether a call is that of a step; -1: an error. */
static int is_step(PyObject *step, PyObject *values)
{
    if (!is_record(step, Step_type))
        return -1;
    PyObject *variant = held_record(((Step *)step)->variant, Variant_type);
    PyObject *matches = variant ? held(((Variant *)variant)->matches) : NULL;
    int same = -1;
    if (matches && Py_TYPE(matches) == matcher_type) {
        same = matcher_matches((Matcher *)matches, values);
    } else if (matches) {
        PyObject *found = PyObject_CallFunctionObjArgs(matches, values, NULL);
        same = found ? PyObject_IsTrue(found) : -1;
        Py_XDECREF(found);
    }
    Py_XDECREF(matches);
    Py_XDECREF(variant);
    return same;
}

/* Return the step of a call at a site, which becomes the site's last one. */
static PyObject *step_of(const Call *call, Site *site)
{
    PyObject *step = NULL, *values = flatten(call);
    PyObject *last = values ? held_record(site->step, Step_type) : NULL;
    if (last)
        step = held(((Step *)last)->follower);
    int same = step ? is_step(step, values) : -1;
    if (same <= 0)
        Py_CLEAR(step);
    if (same == 0)
        step = PyObject_CallMethodObjArgs((PyObject *)site, names.find, values, call->args,
                                          call->kwargs ? call->kwargs : Py_None, NULL);
    if (step && is_record(step, Step_type))
        set_field(&site->step, step);
    else
        Py_CLEAR(step);
    Py_XDECREF(last);
    Py_XDECREF(values);
    return step;
}

/* Open a range with the message of a variant; return whether its tensors are plain. */
static int push(const Call *call, const Variant *variant, PyObject *payload)
{
    PyObject *attributes = held(call->state->attributes), *pushed = NULL;
    PyObject *message = attributes ? held(variant->message) : NULL;
    int plain = message ? flag(variant->plain) : -1;
    if (plain >= 0 && (PyObject *)Py_TYPE(message) == call->mode->_copied)
        pushed = PyObject_CallMethodObjArgs((PyObject *)call->mode, names._push_copied,
                                            (PyObject *)variant, attributes, payload, NULL);
    else if (plain >= 0 && !PyObject_SetAttr(attributes, names.message, message) &&
             !PyObject_SetAttr(attributes, names.payload, payload))
        pushed = PyObject_CallFunctionObjArgs(call->mode->_push, attributes, call->mode->_domain,
                                              NULL);
    Py_XDECREF(message);
    Py_XDECREF(attributes);
    Py_XDECREF(pushed);
    return pushed ? plain : -1;
}

/* Open the range of a call at a site; return whether its tensors are plain; -1: an error. */
static int begin_at(const Call *call, PyObject *site, PyObject *payload)
{
    PyObject *step = is_record(site, Site_type) ? step_of(call, (Site *)site) : NULL;
    PyObject *variant = step ? held_record(((Step *)step)->variant, Variant_type) : NULL;
    int plain = variant ? push(call, (Variant *)variant, payload) : -1;
    Py_XDECREF(variant);
    Py_XDECREF(step);
    return plain;
}

/* Open the range of a call with the code in Python. */
static int begin_in_python(const Call *call)
{
    PyObject *plain = PyObject_CallMethodObjArgs(
        (PyObject *)call->mode, names.begin, (PyObject *)call->op, call->args,
        call->kwargs ? call->kwargs : Py_None, caller(), NULL);
    int found = plain ? PyObject_IsTrue(plain) : -1;
    Py_XDECREF(plain);
    return found;
}

/* Open the range of a call; return whether all its tensors are plain; -1: an error, and none is
   open. */
static int begin(Call *call)
{
    PyObject *payload = NULL, *site = NULL;
    PyObject *state = PyObject_GetAttr(call->mode->_local, names.state);
    if (!state && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear(); /* the thread's first op */
    int collective = flag(call->op->collective), plain = -1;
    if (state && !collective && is_record(state, ThreadState_type)) {
        call->state = (ThreadState *)state;
        site = site_of(call, &payload);
    }
    if (site)
        plain = begin_at(call, site, payload);
    else if (!PyErr_Occurred())
        plain = begin_in_python(call);
    Py_XDECREF(site);
    Py_XDECREF(payload);
    Py_XDECREF(state);
    return plain;
}

/* Close the range, whatever came of the call; `result` is taken, and returned. */
static PyObject *end(Marker *mode, PyObject *result)
{
    PyObject *kind = NULL, *error = NULL, *traceback = NULL;
    if (!result)
        PyErr_Fetch(&kind, &error, &traceback);
    PyObject *popped = PyObject_CallFunctionObjArgs(mode->_pop, mode->_domain, NULL);
    if (!popped) { /* as in Python's `finally`: this error is the one that is raised */
        Py_CLEAR(result);
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return NULL;
    }
    Py_DECREF(popped);
    if (!result)
        PyErr_Restore(kind, error, traceback);
    return result;
}

/* -- one op --------------------------------------------------------------------------------- */

/* Leave a whole call to the code in Python. */
static PyObject *in_python(Marker *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    PyObject *all = PyTuple_New(count + 1), *by_name = named ? PyDict_New() : NULL, *result = NULL;
    if (!all || (named && !by_name))
        goto done;
    PyTuple_SetItem(all, 0, Py_NewRef((PyObject *)self));
    for (Py_ssize_t at = 0; at < count; at++)
        PyTuple_SetItem(all, at + 1, Py_NewRef(args[at]));
    for (Py_ssize_t at = 0; at < named; at++)
        if (PyDict_SetItem(by_name, PyTuple_GetItem(keywords, at), args[count + at]))
            goto done;
    result = PyObject_Call(self->_in_python, all, by_name);
done:
    Py_XDECREF(all);
    Py_XDECREF(by_name);
    return result;
}

/* Return whether an op gets a range, and is run as it is; -1: an error. */
static int is_common(const Marker *self, const Op *op)
{
    int marked = self->active ? flag(op->marked) : 0;
    int odd = marked > 0 ? says(self->_mode_count) : 0;
    if (marked <= 0 || odd)
        return marked < 0 || odd < 0 ? -1 : 0;
    int detaches = flag(op->detaches), called = detaches > 0 ? says(self->_is_called) : 1;
    if (detaches < 0 || called <= 0)
        return detaches < 0 ? -1 : called;
    odd = says(self->_function_mode_enabled);
    return odd < 0 ? -1 : !odd;
}

static PyObject *run(Call *call)
{
    PyObject *function = held(call->op->run), *result = NULL;
    int plain = function ? begin(call) : -1;
    if (plain > 0)
        result = PyObject_Call(function, call->args, call->kwargs);
    else if (!plain)
        result = PyObject_CallFunctionObjArgs(call->mode->_run_odd, call->op, call->args,
                                              call->kwargs ? call->kwargs : Py_None, NULL);
    Py_XDECREF(function);
    return plain < 0 ? NULL : end(call->mode, result);
}

/* Return whether the mode was made as it has to be. */
static int is_ready(const Marker *self)
{
#define AND_HAS(name) &&self->name
    if (1 FIELDS(AND_HAS))
        return 1;
    PyErr_SetString(PyExc_TypeError, "the mode was not initialized");
    return 0;
}

/* `OpMode.__torch_dispatch__`: the op, the classes that override it, its arguments. */
static PyObject *marker_dispatch(PyObject *mode, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords)
{
    Marker *self = (Marker *)mode;
    if (!is_ready(self))
        return NULL;
    int has_kwargs = count > 3 && args[3] != Py_None;
    if (keywords || count < 3 || count > 4 || !PyTuple_CheckExact(args[1]) ||
        PyTuple_Size(args[1]) || !PyTuple_CheckExact(args[2]) ||
        (has_kwargs && !PyDict_CheckExact(args[3])))
        return in_python(self, args, count, keywords);
    PyObject *op = known_op(self, args[0]), *result = NULL;
    int common = op ? is_common(self, (Op *)op) : PyErr_Occurred() ? -1 : 0;
    if (common > 0) {
        PyObject *kwargs = has_kwargs && PyDict_Size(args[3]) ? args[3] : NULL;
        Call call = {self, (Op *)op, args[2], kwargs, NULL};
        result = run(&call);
    } else if (!common) {
        result = in_python(self, args, count, NULL);
    }
    Py_XDECREF(op);
    return result;
}

static PyMethodDef marker_methods[] = {
    {"__torch_dispatch__", (PyCFunction)(void (*)(void))marker_dispatch,
     METH_FASTCALL | METH_KEYWORDS, "Run an op, with a range around it."},
    {NULL, NULL, 0, NULL},
};

#define MEMBER(name) {#name, T_OBJECT_EX, offsetof(Marker, name), 0, NULL},
static PyMemberDef marker_members[] = {
    FIELDS(MEMBER)
    {"active", T_BOOL, offsetof(Marker, active), 0, NULL},
    {"_has_source", T_BOOL, offsetof(Marker, has_source), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot marker_slots[] = {
    {Py_tp_doc, (void *)"The base of a mode that marks ops."},
    {Py_tp_dealloc, (void *)marker_dealloc},
    {Py_tp_traverse, (void *)marker_traverse},
    {Py_tp_clear, (void *)marker_clear},
    {Py_tp_setattro, (void *)marker_setattro},
    {Py_tp_methods, marker_methods},
    {Py_tp_members, marker_members},
    {0, NULL},
};

static PyType_Spec marker_spec = {
    "pyprof2.nvtx._marking.Marker", sizeof(Marker), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, marker_slots,
};

static PyTypeObject *marker_type;

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **kept)
{
    /* If the module was imported before, what is made of its types may be in use. */
    PyObject *type = *kept ? Py_NewRef((PyObject *)*kept)
                           : PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = !type || PyModule_AddObjectRef(module, name, type);
    if (!*kept && !failed)
        *kept = (PyTypeObject *)Py_NewRef(type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static int fill_module(PyObject *module)
{
#define OR_ADD(K) || add_type(module, &K##_spec, #K, &K##_type)
    return make_names() || add_type(module, &matcher_spec, "Matcher", &matcher_type) ||
                   add_type(module, &marker_spec, "Marker", &marker_type) OR_ADD(Op) OR_ADD(Variant)
                   OR_ADD(Step) OR_ADD(Site) OR_ADD(ForwardOp) OR_ADD(Scope) OR_ADD(ThreadState)
               ? -1
               : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)fill_module}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_marking", "The compiled way of marking ops.", 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__marking(void)
{
    return PyModuleDef_Init(&module_def);
}
