/* The compiled reader of a memory snapshot: the events of its pickle become buffers of columns.

   It knows the opcodes that a list of events is made of, in the order in which pickles have them,
   and makes no object of Python's for any of them. What stands before and behind the lists it is
   not given. Frames and stacks have the numbers that Python gives them, each distinct one once.

   It takes bytes that nobody has checked. What it does not understand it does not guess: `read`
   returns None, and the reader in Python (_snapshot_pickle.py) reads the whole file instead. So it
   may be stricter than that one, and never laxer. There is no recursion: frames are in stacks,
   stacks in events, and nothing else is in anything. `code` and `take_bytes` alone move on in the
   file, and ask where the end is; each length is read once, and what is memoized takes four bytes, of
   which each stands for a byte of the file or more. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_dictionary.h"

/* Opcodes, by the names that the standard library's pickletools has for them. */
enum {
    MARK = '(', EMPTY_DICT = '}', SETITEM = 's', SETITEMS = 'u', EMPTY_LIST = ']', APPEND = 'a',
    APPENDS = 'e', TUPLE2 = 0x86, NONE = 'N', NEWTRUE = 0x88, NEWFALSE = 0x89, BININT1 = 'K',
    BININT2 = 'M', BININT = 'J', LONG1 = 0x8A, BINFLOAT = 'G', SHORT_BINUNICODE = 0x8C,
    BINUNICODE = 'X', MEMOIZE = 0x94, BINGET = 'h', LONG_BINGET = 'j', FRAME = 0x95,
};

enum { LONGEST_TEXT = 1 << 20, KIND_BITS = 3, NUMBERS_END = 1 << 29 };

/* What a value is, and what the memo holds; UNSEEN is what Python has not been asked for yet. */
enum { UNSEEN, NOTHING, NUMBER, TEXT, OF_FRAME, OF_STACK, OTHER };

/* The columns of an event: numbers, codes of texts, the number of a stack. */
enum { ADDR, SIZE, TIME, DEVICE_FREE, ACTION, NOTE, STACK, COLUMNS };

/* What the value of a key is for: in an event, and from FILENAME on in a frame. */
enum {
    TO_ADDR, TO_SIZE, TO_TIME, TO_DEVICE_FREE, TO_ACTION, TO_USER, TO_COMPILER, TO_STACK, READ,
    UNREAD = READ, FILENAME, LINE, NAME, UNREAD_OF_FRAME, ODD, ODD_AND_SEEN,
};

static const struct {
    const char *name;
    u8 role;
} KEYS[] = {
    {"addr", TO_ADDR}, {"size", TO_SIZE}, {"time_us", TO_TIME}, {"device_free", TO_DEVICE_FREE},
    {"action", TO_ACTION}, {"user_metadata", TO_USER}, {"compile_context", TO_COMPILER},
    {"frames", TO_STACK}, {"stream", UNREAD}, {"pool_id", UNREAD}, {"segment_pool_id", UNREAD},
    {"forward_frames", UNREAD}, {"filename", FILENAME}, {"line", LINE}, {"name", NAME},
    {"fx_node_op", UNREAD_OF_FRAME}, {"fx_node_name", UNREAD_OF_FRAME},
    {"fx_original_trace", UNREAD_OF_FRAME},
};

typedef struct {
    int64_t number; /* or a code of a text, or the number of a frame or of a stack + 1 */
    u8 kind;
} Value;

typedef struct {
    int32_t codes[2]; /* among actions, and among notes; -1: not one of them yet */
    u8 role, is_note;
} About;

typedef struct {
    Buffer values; /* of the first rows; what is missing in others is filled in later */
    u8 width;
    int64_t missing;
} Column;

typedef struct {
    PyObject_HEAD
    PyObject *known, *frame, *stack; /* what Python is asked */
    uint64_t seed;
    const u8 *at, *begin, *end;
    const u8 *stop; /* where the frame ends that `at` is in; `end` in none */
    Buffer memo;    /* uint32_t: a kind, and above its bits a number */
    Dictionary texts, frames, stacks;
    Buffer about;         /* of each text */
    Buffer frame_numbers; /* int32_t of each distinct frame */
    Buffer stack_numbers; /* int32_t of each distinct stack */
    Buffer words[3];      /* int32_t, codes of texts: actions, notes, odd keys */
    Buffer frames_here;   /* int32_t: of the stack that is read */
    Column columns[COLUMNS];
    size_t rows;
    int used;
} Reader;

typedef struct {
    Value values[READ];
    uint32_t seen; /* a bit for each role */
} Event;

typedef struct {
    Value values[3]; /* filename, line, name */
} Frame;

/* ---- Steps in the file. All functions return 0 where they do not understand, or where an error
   of Python's is set. ---- */

static int short_of_memory(void)
{
    PyErr_NoMemory();
    return 0;
}

static uint64_t little4(const u8 *at) /* one load, as compilers see it */
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
}

static uint64_t little8(const u8 *at)
{
    return little4(at) | little4(at + 4) << 32;
}

/* A number of 0 to 8 bytes that were taken. */
static uint64_t little(const Reader *in, const u8 *at, int size)
{
    uint64_t value = 0;
    if (size == 1)
        return *at;
    if (size == 4)
        return little4(at);
    if (size && in->end - at >= 8)
        return little8(at) & UINT64_MAX >> (64 - 8 * size);
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* The next opcode, which is not taken; -1: there is none. Frames say nothing and are passed, but
   none may be in another, nor end within what `take` takes: unpicklers go astray there. */
static int code(Reader *in)
{
    while (in->at < in->end) {
        uint64_t size;
        if (in->at == in->stop)
            in->stop = in->end;
        if (*in->at != FRAME)
            return *in->at;
        if (in->stop != in->end || in->end - in->at < 9)
            return -1;
        size = little8(in->at + 1);
        in->at += 9;
        if (size > (uint64_t)(in->end - in->at))
            return -1;
        in->stop = in->at + size;
    }
    return -1;
}

/* Take so many bytes; NULL: the frame, or the file, ends before. */
static const u8 *take_bytes(Reader *in, size_t size)
{
    const u8 *found = in->at;
    if ((size_t)(in->stop - found) < size)
        return NULL;
    in->at += size;
    return found;
}

/* Take an opcode and so many bytes behind it, which are returned. */
static const u8 *take(Reader *in, size_t size)
{
    const u8 *found = take_bytes(in, size + 1);
    return found ? found + 1 : NULL;
}

static int take_code(Reader *in, int wanted)
{
    return code(in) == wanted && take(in, 0);
}

/* ---- The memo ---- */

static size_t memo_size(const Reader *in)
{
    return in->memo.size / sizeof(uint32_t);
}

static int pack(const Value *value, uint32_t *packed)
{
    *packed = (uint32_t)value->number << KIND_BITS | value->kind;
    return value->number >= 0 && value->number < NUMBERS_END;
}

/* Memoize, if the next opcode says so, what will be known later by `set`; at `place` if at all. */
static int remember(Reader *in, const Value *value, size_t *place)
{
    uint32_t packed;
    *place = SIZE_MAX;
    if (code(in) != MEMOIZE)
        return 1;
    *place = memo_size(in);
    if (!take(in, 0) || !pack(value, &packed))
        return 0;
    return push(&in->memo, &packed, sizeof packed) || short_of_memory();
}

static int set(Reader *in, size_t place, const Value *value)
{
    uint32_t packed;
    if (!pack(value, &packed))
        return 0;
    if (place < memo_size(in))
        ((uint32_t *)in->memo.data)[place] = packed;
    return 1;
}

static u8 role_of(const u8 *text, size_t size)
{
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (strlen(KEYS[i].name) == size && !memcmp(KEYS[i].name, text, size))
            return KEYS[i].role;
    return ODD;
}

static int add_about(Reader *in, const u8 *text, size_t size)
{
    About about = {{-1, -1}, role_of(text, size), 1};
    PyObject *good = PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)size, "strict");
    if (!good) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(good);
    about.is_note = size && !(size == 3 && !memcmp(text, "N/A", 3));
    return push(&in->about, &about, sizeof about) || short_of_memory();
}

/* The code of a text in the file or of Python's, about which all is known then. */
static int find_text(Reader *in, const u8 *text, size_t size, Value *value)
{
    int32_t before = in->texts.count, found = code_of(&in->texts, text, size, in->seed);
    value->kind = TEXT;
    value->number = found;
    if (found < 0)
        return found == NO_MEMORY ? short_of_memory() : 0;
    /* Its copy is looked at: the file may change meanwhile. */
    if (found == before) {
        text = word_of(&in->texts, found, &size);
        return add_about(in, text, size);
    }
    return 1;
}

/* What Python says that is at a place of the memo that was filled before the events. */
static int ask(Reader *in, size_t index, Value *value)
{
    PyObject *said = PyObject_CallFunction(in->known, "n", (Py_ssize_t)index);
    int good = 0, kind = OTHER;
    if (!said)
        return 0;
    if (PyBytes_Check(said)) {
        char *text;
        Py_ssize_t size;
        good = !PyBytes_AsStringAndSize(said, &text, &size)
               && find_text(in, (const u8 *)text, (size_t)size, value);
    } else if (PyArg_ParseTuple(said, "iL", &kind, &value->number)) {
        value->kind = kind ? OF_STACK : OF_FRAME;
        value->number += kind ? 1 : 0;
        good = 1;
    }
    Py_DECREF(said);
    return good && set(in, index, value);
}

static int read_index(Reader *in, size_t *index)
{
    int size = code(in) == BINGET ? 1 : 4;
    const u8 *bytes = take(in, (size_t)size);
    if (!bytes)
        return 0;
    *index = little(in, bytes, size);
    return *index < memo_size(in);
}

static int read_get(Reader *in, Value *value)
{
    size_t index;
    uint32_t packed;
    if (!read_index(in, &index))
        return 0;
    packed = ((const uint32_t *)in->memo.data)[index];
    value->kind = packed & ((1 << KIND_BITS) - 1);
    value->number = packed >> KIND_BITS;
    return value->kind != UNSEEN || ask(in, index, value);
}

/* ---- Plain values ---- */

static int is_get(int opcode)
{
    return opcode == BINGET || opcode == LONG_BINGET;
}

static int is_text(int opcode)
{
    return opcode == SHORT_BINUNICODE || opcode == BINUNICODE;
}

static int is_number(int opcode)
{
    return opcode == BININT1 || opcode == BININT2 || opcode == BININT || opcode == LONG1;
}

static int read_text(Reader *in, Value *value)
{
    int size = code(in) == SHORT_BINUNICODE ? 1 : 4;
    const u8 *bytes = take(in, (size_t)size);
    size_t length, place;
    if (!bytes)
        return 0;
    length = little(in, bytes, size);
    if (length > LONGEST_TEXT || !(bytes = take_bytes(in, length)))
        return 0;
    return find_text(in, bytes, length, value) && remember(in, value, &place);
}

static int64_t signed_of(uint64_t bits, int size) /* of so many bytes, 1 to 8 */
{
    uint64_t sign = UINT64_C(1) << (8 * size - 1);
    return (int64_t)((bits ^ sign) - sign);
}

static int read_number(Reader *in, Value *value)
{
    int opcode = code(in), size = opcode == BININT1 ? 1 : opcode == BININT2 ? 2 : 4;
    const u8 *bytes = take(in, opcode == LONG1 ? 1 : (size_t)size);
    value->kind = NUMBER;
    if (!bytes)
        return 0;
    if (opcode == LONG1) {
        size = *bytes;
        if (size > 8 || !(bytes = take_bytes(in, (size_t)size)))
            return 0;
    }
    value->number = (int64_t)little(in, bytes, size);
    if (size && (opcode == LONG1 || opcode == BININT))
        value->number = signed_of((uint64_t)value->number, size);
    return 1;
}

/* A value of which is known what it is for: none, a number, a text, or what the memo has. */
static int read_value(Reader *in, Value *value)
{
    int opcode = code(in);
    if (is_get(opcode))
        return read_get(in, value);
    if (is_number(opcode))
        return read_number(in, value);
    if (is_text(opcode))
        return read_text(in, value);
    value->kind = NOTHING;
    value->number = 0;
    return opcode == NONE && take(in, 0);
}

static int read_key(Reader *in, Value *key)
{
    int opcode = code(in);
    if (!is_get(opcode) && !is_text(opcode))
        return 0;
    return read_value(in, key) && key->kind == TEXT;
}

static int skip_plain(Reader *in) /* what nobody looks at: Python is not asked either */
{
    int opcode = code(in);
    Value value;
    size_t index;
    if (is_get(opcode))
        return read_index(in, &index);
    if (opcode == NEWTRUE || opcode == NEWFALSE)
        return take(in, 0) != NULL;
    if (opcode == BINFLOAT)
        return take(in, 8) != NULL;
    return read_value(in, &value);
}

/* ---- Lists and dictionaries; of what, `item` and `pair` know. ---- */

typedef int Step(Reader *in, void *into);

/* What follows an empty list: items between MARK and APPENDS, or one that `begins`, and APPEND. */
static int read_items(Reader *in, Step *item, int (*begins)(Reader *in), void *into)
{
    for (;;) {
        if (code(in) == MARK) {
            take(in, 0);
            while (code(in) != APPENDS)
                if (!item(in, into))
                    return 0;
            take(in, 0);
        } else if (begins && begins(in)) {
            if (!item(in, into) || !take_code(in, APPEND))
                return 0;
        } else {
            return 1;
        }
    }
}

/* What follows an empty dictionary, which has one pair or more. */
static int read_pairs(Reader *in, Step *pair, void *into)
{
    if (code(in) != MARK)
        return pair(in, into) && take_code(in, SETITEM);
    take(in, 0);
    do {
        if (!pair(in, into))
            return 0;
    } while (code(in) != SETITEMS);
    return take(in, 0) != NULL;
}

static int skip_item(Reader *in, void *into)
{
    (void)into;
    return skip_plain(in);
}

/* A value that is not read: a plain one, two numbers in a tuple, or a list of plain ones. */
static int skip_value(Reader *in)
{
    const Value other = {0, OTHER};
    size_t place;
    int first = code(in);
    if (first == EMPTY_LIST)
        return take(in, 0) && remember(in, &other, &place)
               && read_items(in, skip_item, NULL, NULL);
    if (!skip_plain(in))
        return 0;
    if (!is_number(first) || !is_number(code(in)))
        return 1;
    return skip_plain(in) && take_code(in, TUPLE2) && remember(in, &other, &place);
}

/* ---- Stacks ---- */

/* The number that Python gives to what has this code; `said` is its answer, if it was asked. */
static int number_of(Buffer *numbers, int32_t found, PyObject *said, Value *value)
{
    if (said) {
        int32_t number = (int32_t)PyLong_AsLong(said);
        Py_DECREF(said);
        if (PyErr_Occurred())
            return 0;
        if (!push(numbers, &number, sizeof number))
            return short_of_memory();
    }
    value->number = ((const int32_t *)numbers->data)[found];
    return 1;
}

static int find_frame(Reader *in, const Frame *frame, Value *value)
{
    int64_t parts[3] = {frame->values[0].number, frame->values[1].number, frame->values[2].number};
    int32_t before = in->frames.count;
    int32_t found = code_of(&in->frames, (const u8 *)parts, sizeof parts, in->seed);
    PyObject *said = NULL;
    if (found < 0)
        return found == NO_MEMORY ? short_of_memory() : 0;
    if (found == before) {
        size_t sizes[2];
        const u8 *path = word_of(&in->texts, (int32_t)parts[0], &sizes[0]);
        const u8 *name = word_of(&in->texts, (int32_t)parts[2], &sizes[1]);
        said = PyObject_CallFunction(in->frame, "s#Ls#", path, (Py_ssize_t)sizes[0],
                                     (long long)parts[1], name, (Py_ssize_t)sizes[1]);
        if (!said)
            return 0;
    }
    value->kind = OF_FRAME;
    return number_of(&in->frame_numbers, found, said, value);
}

static int frame_pair(Reader *in, void *into)
{
    Frame *frame = into;
    Value key, *value;
    u8 role;
    if (!read_key(in, &key))
        return 0;
    role = ((const About *)in->about.data)[key.number].role;
    if (role == UNREAD_OF_FRAME)
        return skip_plain(in);
    if (role < FILENAME || role > NAME)
        return 0;
    value = &frame->values[role - FILENAME];
    return value->kind == NOTHING && read_value(in, value)
           && value->kind == (role == LINE ? NUMBER : TEXT);
}

static int read_frame(Reader *in, Value *value)
{
    Frame frame = {{{0, NOTHING}, {0, NOTHING}, {0, NOTHING}}};
    const Value other = {0, OTHER};
    size_t place;
    if (!take(in, 0) || !remember(in, &other, &place) || !read_pairs(in, frame_pair, &frame))
        return 0;
    for (int i = 0; i < 3; i++)
        if (frame.values[i].kind == NOTHING)
            return 0;
    return find_frame(in, &frame, value) && set(in, place, value);
}

static int frame_item(Reader *in, void *into)
{
    Value value;
    int32_t number;
    (void)into;
    if (code(in) == EMPTY_DICT) {
        if (!read_frame(in, &value))
            return 0;
    } else if (!is_get(code(in)) || !read_get(in, &value) || value.kind != OF_FRAME) {
        return 0;
    }
    number = (int32_t)value.number;
    return push(&in->frames_here, &number, sizeof number) || short_of_memory();
}

/* Whether a frame comes, and not a key of the event that the stack is in. */
static int frame_begins(Reader *in)
{
    const u8 *here;
    Value value;
    int found;
    if (!is_get(code(in)))
        return code(in) == EMPTY_DICT;
    here = in->at;
    found = read_get(in, &value) && value.kind == OF_FRAME;
    in->at = here;
    return found;
}

static int find_stack(Reader *in, Value *value)
{
    const Buffer *here = &in->frames_here;
    int32_t before = in->stacks.count, found;
    PyObject *said = NULL;
    value->kind = OF_STACK;
    value->number = 0;
    if (!here->size)
        return 1;
    found = code_of(&in->stacks, here->data, here->size, in->seed);
    if (found < 0)
        return found == NO_MEMORY ? short_of_memory() : 0;
    if (found == before) {
        said = PyObject_CallFunction(in->stack, "y#", here->data, (Py_ssize_t)here->size);
        if (!said)
            return 0;
    }
    if (!number_of(&in->stack_numbers, found, said, value))
        return 0;
    value->number++;
    return 1;
}

static int read_stack(Reader *in, Value *value)
{
    const Value other = {0, OTHER};
    size_t place;
    if (code(in) != EMPTY_LIST)
        return read_value(in, value);
    in->frames_here.size = 0;
    return take(in, 0) && remember(in, &other, &place)
           && read_items(in, frame_item, frame_begins, NULL) && !PyErr_Occurred()
           && find_stack(in, value) && set(in, place, value);
}

/* ---- Events ---- */

static int fill(Reader *in, Column *column) /* up to the row that comes next */
{
    while (column->values.size < in->rows * column->width)
        if (!push(&column->values, &column->missing, column->width))
            return short_of_memory();
    return 1;
}

static int put(Reader *in, int which, int64_t value)
{
    Column *column = &in->columns[which];
    int32_t narrow = (int32_t)value;
    if (!fill(in, column))
        return 0;
    if (column->width == sizeof narrow)
        return push(&column->values, &narrow, sizeof narrow) || short_of_memory();
    return push(&column->values, &value, sizeof value) || short_of_memory();
}

static int put_text(Reader *in, int which, int64_t text)
{
    About *about = (About *)in->about.data + text;
    int list = which - ACTION;
    int32_t word = (int32_t)text;
    if (about->codes[list] < 0) {
        about->codes[list] = (int32_t)(in->words[list].size / sizeof word);
        if (!push(&in->words[list], &word, sizeof word))
            return short_of_memory();
    }
    return put(in, which, about->codes[list]);
}

static int is_note(const Reader *in, const Value *value)
{
    return value->kind == TEXT && ((const About *)in->about.data)[value->number].is_note;
}

static int keep_event(Reader *in, const Event *event)
{
    const Value *note = &event->values[TO_USER], *values = event->values;
    for (int which = ADDR; which <= DEVICE_FREE; which++)
        if (values[which].kind == NUMBER && !put(in, which, values[which].number))
            return 0;
    if (values[TO_ACTION].kind == TEXT && !put_text(in, ACTION, values[TO_ACTION].number))
        return 0;
    if (!is_note(in, note))
        note = &event->values[TO_COMPILER];
    if (is_note(in, note) && !put_text(in, NOTE, note->number))
        return 0;
    if (values[TO_STACK].kind == OF_STACK && values[TO_STACK].number
        && !put(in, STACK, values[TO_STACK].number - 1))
        return 0;
    in->rows++;
    return 1;
}

static int read_odd(Reader *in, const Value *key)
{
    About *about = (About *)in->about.data + key->number;
    int32_t word = (int32_t)key->number;
    Value value;
    if (about->role == ODD) {
        about->role = ODD_AND_SEEN;
        if (!push(&in->words[2], &word, sizeof word))
            return short_of_memory();
    }
    return read_value(in, &value) && value.kind <= TEXT;
}

static int event_pair(Reader *in, void *into)
{
    static const u8 kinds[READ] = {
        NUMBER, NUMBER, NUMBER, NUMBER, TEXT, TEXT, TEXT, OF_STACK,
    };
    Event *event = into;
    Value key, *value;
    u8 role;
    if (!read_key(in, &key))
        return 0;
    role = ((const About *)in->about.data)[key.number].role;
    if (role >= ODD)
        return read_odd(in, &key);
    if (role == UNREAD)
        return skip_value(in);
    if (role > UNREAD || event->seen >> role & 1)
        return 0;
    event->seen |= 1u << role;
    value = &event->values[role];
    if (!(role == TO_STACK ? read_stack(in, value) : read_value(in, value)))
        return 0;
    return value->kind == NOTHING || value->kind == kinds[role];
}

static int event_begins(Reader *in)
{
    return code(in) == EMPTY_DICT;
}

static int event_item(Reader *in, void *into)
{
    const Value other = {0, OTHER};
    Event event;
    size_t place;
    (void)into;
    event.seen = 0;
    for (int role = 0; role < READ; role++)
        event.values[role].kind = NOTHING;
    return take_code(in, EMPTY_DICT) && remember(in, &other, &place)
           && read_pairs(in, event_pair, &event) && keep_event(in, &event);
}

/* The events of a device, and where there may be `many`, of those after it; how many of each. */
static int read_lists(Reader *in, int many, PyObject *counts)
{
    const Value other = {0, OTHER};
    size_t place;
    for (;;) {
        size_t before = in->rows;
        PyObject *count;
        int failed;
        if (!read_items(in, event_item, event_begins, NULL))
            return 0;
        count = PyLong_FromSize_t(in->rows - before);
        failed = !count || PyList_Append(counts, count);
        Py_XDECREF(count);
        if (failed)
            return 0;
        if (!many || code(in) != EMPTY_LIST)
            return 1;
        if (!take(in, 0) || !remember(in, &other, &place))
            return 0;
    }
}

/* ---- What Python sees ---- */

static int prepare(Reader *self, const Py_buffer *view, Py_ssize_t at, Py_ssize_t stop,
                   Py_ssize_t memoized)
{
    size_t size;
    if (self->used || at < 0 || at > stop || stop > view->len || memoized < 0
        || memoized > view->len) {
        PyErr_SetString(PyExc_ValueError, "used before, or a place that is not in the file");
        return 0;
    }
    self->used = 1;
    self->begin = view->buf;
    self->at = self->begin + at;
    self->stop = self->begin + stop;
    self->end = self->begin + view->len;
    size = (size_t)memoized * sizeof(uint32_t);
    if (!reserve(&self->memo, size + 1))
        return short_of_memory();
    memset(self->memo.data, 0, size);
    self->memo.size = size;
    return 1;
}

static PyObject *reader_read(PyObject *object, PyObject *args)
{
    Reader *self = (Reader *)object;
    PyObject *data, *counts, *found = NULL;
    Py_ssize_t at, stop, memoized;
    Py_buffer view;
    int many;
    if (!PyArg_ParseTuple(args, "Onnnp", &data, &at, &stop, &memoized, &many)
        || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
        return NULL;
    counts = PyList_New(0);
    if (counts && prepare(self, &view, at, stop, memoized)) {
        int good = read_lists(self, many, counts);
        for (int i = 0; good && i < COLUMNS; i++)
            good = !self->columns[i].values.size || fill(self, &self->columns[i]);
        if (good)
            found = Py_BuildValue("nnnO", (Py_ssize_t)(self->at - self->begin),
                                  (Py_ssize_t)(self->stop - self->begin),
                                  (Py_ssize_t)memo_size(self), counts);
        else if (!PyErr_Occurred())
            found = Py_NewRef(Py_None);
    }
    Py_XDECREF(counts);
    self->at = self->begin = self->stop = self->end = NULL;
    PyBuffer_Release(&view);
    return found;
}

static PyObject *reader_write(PyObject *object, PyObject *args)
{
    Reader *self = (Reader *)object;
    PyObject *write, *view, *said;
    const Buffer *values;
    int which;
    if (!PyArg_ParseTuple(args, "iO", &which, &write))
        return NULL;
    if (which < 0 || which >= COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "no such column");
        return NULL;
    }
    values = &self->columns[which].values;
    if (!values->size)
        return PyLong_FromLong(0);
    view = PyMemoryView_FromMemory((char *)values->data, (Py_ssize_t)values->size, PyBUF_READ);
    if (!view)
        return NULL;
    said = PyObject_CallFunctionObjArgs(write, view, NULL);
    Py_XDECREF(said);
    said = said ? PyObject_CallMethod(view, "release", NULL) : NULL;
    Py_DECREF(view);
    if (!said)
        return NULL;
    Py_DECREF(said);
    return PyLong_FromSize_t(self->rows);
}

static PyObject *bytes_of(const Reader *self, int64_t text)
{
    size_t size;
    const u8 *word = word_of(&self->texts, (int32_t)text, &size);
    return PyBytes_FromStringAndSize((const char *)word, (Py_ssize_t)size);
}

static PyObject *reader_words(PyObject *object, PyObject *args)
{
    Reader *self = (Reader *)object;
    PyObject *found;
    int which;
    if (!PyArg_ParseTuple(args, "i", &which))
        return NULL;
    if (which < 0 || which > 2) {
        PyErr_SetString(PyExc_ValueError, "no such words");
        return NULL;
    }
    found = PyList_New(0);
    for (size_t i = 0; found && i < self->words[which].size / sizeof(int32_t); i++) {
        PyObject *word = bytes_of(self, ((const int32_t *)self->words[which].data)[i]);
        if (!word || PyList_Append(found, word))
            Py_CLEAR(found);
        Py_XDECREF(word);
    }
    return found;
}

static PyObject *reader_text(PyObject *object, PyObject *args)
{
    Reader *self = (Reader *)object;
    Py_ssize_t index;
    uint32_t packed;
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    if (index < 0 || (size_t)index >= memo_size(self))
        Py_RETURN_NONE;
    packed = ((const uint32_t *)self->memo.data)[index];
    if ((packed & ((1 << KIND_BITS) - 1)) != TEXT)
        Py_RETURN_NONE;
    return bytes_of(self, packed >> KIND_BITS);
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static const int64_t missing[COLUMNS] = {-1, 0, -1, -1, -1, -1, -1};
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *known, *frame, *stack;
    unsigned long long seed;
    Reader *self;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOK", &known, &frame, &stack, &seed)
        || !(self = (Reader *)allocate(type, 0)))
        return NULL;
    self->known = Py_NewRef(known);
    self->frame = Py_NewRef(frame);
    self->stack = Py_NewRef(stack);
    self->seed = seed;
    for (int i = 0; i < COLUMNS; i++) {
        self->columns[i].width = i < ACTION ? sizeof(int64_t) : sizeof(int32_t);
        self->columns[i].missing = missing[i];
    }
    return (PyObject *)self;
}

static void reader_dealloc(PyObject *object)
{
    Reader *self = (Reader *)object;
    PyTypeObject *type = Py_TYPE(object);
    Buffer *buffers[] = {
        &self->memo, &self->about, &self->frame_numbers, &self->stack_numbers, &self->words[0],
        &self->words[1], &self->words[2], &self->frames_here,
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]->data);
    for (int i = 0; i < COLUMNS; i++)
        free(self->columns[i].values.data);
    forget(&self->texts);
    forget(&self->frames);
    forget(&self->stacks);
    Py_XDECREF(self->known);
    Py_XDECREF(self->frame);
    Py_XDECREF(self->stack);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef reader_methods[] = {
    {"read", reader_read, METH_VARARGS,
     "Return where the lists of events end, and the frame they end in, the memo's size, and how "
     "many events are in each; None: not understood."},
    {"write", reader_write, METH_VARARGS,
     "Give the bytes of a column to a function, if any event has it; return how many values."},
    {"words", reader_words, METH_VARARGS, "Return the actions (0), notes (1), or odd keys (2)."},
    {"text", reader_text, METH_VARARGS, "Return the text at a place of the memo; None: no text."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, (void *)"Reads the events of one memory snapshot."},
    {Py_tp_new, (void *)reader_new},
    {Py_tp_dealloc, (void *)reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    "pyprof2.parsers._snapshot_events.Reader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT, reader_slots,
};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &reader_spec, NULL);
    int failed = !type || PyModule_AddObjectRef(module, "Reader", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)fill_module}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_snapshot_events", "The compiled reader of memory snapshots.", 0, NULL,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__snapshot_events(void)
{
    return PyModuleDef_Init(&module_def);
}
