/* The compiled scanner of the Kineto reader: the events of a JSON array become buffers of columns.

   It knows JSON and nothing of what events mean: which groups there are, and which keys of `args`
   are which columns, it is told when it is made (see _kineto_columns.py). Texts become codes of
   dictionaries that last as long as the scanner, so that Python looks at each distinct one once.

   It takes bytes that nobody has checked. What it does not understand it does not guess: `scan`
   returns None, and the scanner in Python, which mends and counts damage, scans that text instead.
   So it may be stricter than that one, and never laxer. There is no recursion. A bytes object ends
   with a NUL that is not part of it; no pointer moves on from a byte that it has not matched, and
   NUL matches nothing, so a single byte can be looked at without asking where the end is. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_dictionary.h"

enum { NAME_MAX_BYTES = 1 << 14, DEPTH_MAX = 64, GROUPS_MAX = 32, KEYS_MAX = 64, SLOTS = 256 };
enum { DIGITS_MAX = 18, US_DIGITS_MAX = 16, NUMBER_MAX = 64 };
enum { STEPS_MAX = 4096, STEPS_OF_PLACE = 24, STEP_BYTES_MAX = 256, GUESSES = 4096 };

static const int64_t US_MAX = INT64_C(4000000000000000); /* the year 2096; in ns it fits */

/* What a value is; the first four are what Python is given as `kinds`. */
enum { NONE = 0, INT = 1, TEXT = 2, FLOAT = 3, RAW = 4 };
/* What a column takes: the codes of KINDS in _kineto_native.py. */
enum { AS_NUMBER = 0, AS_ID = 1, AS_TEXT = 2, AS_JSON = 3, AS_ALL = 4 };

typedef struct {
    int64_t bits; /* a number, the bits of a double, or a code */
    u8 kind;
} Value;

/* ---- JSON: each function returns where it got to, NULL where it does not understand. ---- */

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

static uint64_t eight(const u8 *at)
{
    uint64_t x;
    memcpy(&x, at, 8);
    return x;
}

/* How many bytes stand before the first one that is marked, of 8 bytes that are read at once; a byte
   is marked by any bit in it. 0 is always right: then they are looked at one by one. */
static int before_marked(uint64_t marked)
{
#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_ctzll(marked) / 8;
#else
    (void)marked;
    return 0;
#endif
}

static const u8 *blank(const u8 *at, const u8 *end)
{
    while (*at <= ' ') {
        if (*at != ' ' && *at != '\n' && *at != '\r' && *at != '\t')
            break;
        at++;
        while (end - at >= 8 && *at == ' ') { /* an indent */
            uint64_t other = eight(at) ^ EACH(' ');
            if (other) {
                at += before_marked(other);
                break;
            }
            at += 8;
        }
    }
    return at;
}

static int hex4(const u8 *at)
{
    int code = 0;
    for (int i = 0; i < 4; i++) {
        u8 c = at[i]; /* the NUL at the end is no digit */
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static const u8 *escape(const u8 *at) /* at the backslash */
{
    int code;
    switch (at[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return at + 2;
    case 'u':
        code = hex4(at + 2);
        at += 6;
        if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF))
            return NULL;
        if (code < 0xD800 || code > 0xDBFF)
            return at;
        if (at[0] != '\\' || at[1] != 'u')
            return NULL;
        code = hex4(at + 2);
        return code >= 0xDC00 && code <= 0xDFFF ? at + 6 : NULL;
    default:
        return NULL;
    }
}

static int follows(u8 c)
{
    return (c & 0xC0) == 0x80;
}

static const u8 *wide(const u8 *at) /* one character of UTF-8 that is not ASCII */
{
    u8 c = at[0];
    if (c >= 0xC2 && c <= 0xDF)
        return follows(at[1]) ? at + 2 : NULL;
    if (c >= 0xE0 && c <= 0xEF) {
        if (!follows(at[1]) || !follows(at[2]))
            return NULL;
        if ((c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F))
            return NULL;
        return at + 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (!follows(at[1]) || !follows(at[2]) || !follows(at[3]))
            return NULL;
        if ((c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F))
            return NULL;
        return at + 4;
    }
    return NULL;
}

/* The bytes of a string that need a second look: marked in the first of them, and maybe after it. */
static uint64_t special(uint64_t x)
{
    uint64_t quote = x ^ EACH('"'), slash = x ^ EACH('\\');
    return (x | ((x - EACH(0x20)) & ~x) | ((quote - EACH(1)) & ~quote)
            | ((slash - EACH(1)) & ~slash)) & EACH(0x80);
}

/* From behind the opening quote to the closing one. */
static const u8 *string_end(const u8 *at, const u8 *end, int *escaped)
{
    while (at) {
        while (end - at >= 8) {
            uint64_t marked = special(eight(at));
            if (marked) {
                at += before_marked(marked);
                break;
            }
            at += 8;
        }
        if (*at == '"')
            return at;
        if (*at == '\\') {
            *escaped = 1;
            at = escape(at);
        } else if (*at >= 0x80) {
            at = wide(at);
        } else if (*at < 0x20) {
            return NULL;
        } else {
            at++;
        }
    }
    return NULL;
}

static const u8 *digits(const u8 *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

static const u8 *number_end(const u8 *at, int *is_float)
{
    const u8 *first;
    *is_float = 0;
    if (*at == '-')
        at++;
    first = at;
    at = digits(at);
    if (at == first || (*first == '0' && at - first > 1))
        return NULL;
    if (*at == '.') {
        *is_float = 1;
        first = ++at;
        at = digits(at);
        if (at == first)
            return NULL;
    }
    if (*at == 'e' || *at == 'E') {
        *is_float = 1;
        at++;
        if (*at == '+' || *at == '-')
            at++;
        first = at;
        at = digits(at);
        if (at == first)
            return NULL;
    }
    return at;
}

static const u8 *literal(const u8 *at, const u8 *end, const char *word, size_t length)
{
    if ((size_t)(end - at) < length || memcmp(at, word, length))
        return NULL;
    return at + length;
}

static const u8 *key_end(const u8 *at, const u8 *end) /* from the quote to behind the colon */
{
    int escaped = 0;
    if (*at != '"' || !(at = string_end(at + 1, end, &escaped)))
        return NULL;
    at = blank(at + 1, end);
    return *at == ':' ? at + 1 : NULL;
}

static const u8 *scalar_end(const u8 *at, const u8 *end)
{
    int flag = 0;
    switch (*at) {
    case '"':
        at = string_end(at + 1, end, &flag);
        return at ? at + 1 : NULL;
    case 't':
        return literal(at, end, "true", 4);
    case 'f':
        return literal(at, end, "false", 5);
    case 'n':
        return literal(at, end, "null", 4);
    default:
        return number_end(at, &flag);
    }
}

/* From the first byte of a value to behind it; a bit of `open` says what each level is. */
static const u8 *value_end(const u8 *at, const u8 *end)
{
    uint64_t open = 0;
    int depth = 0;
    for (;;) {
        at = blank(at, end);
        if (*at == '{' || *at == '[') {
            if (depth == DEPTH_MAX)
                return NULL;
            open = open << 1 | (*at == '{');
            depth++;
            at = blank(at + 1, end);
            if (*at != ((open & 1) ? '}' : ']')) {
                if ((open & 1) && !(at = key_end(at, end)))
                    return NULL;
                continue;
            }
        } else if (!(at = scalar_end(at, end))) {
            return NULL;
        }
        for (;;) { /* behind a value, or at the bracket that closes an empty level */
            if (!depth)
                return at;
            at = blank(at, end);
            if (*at != ((open & 1) ? '}' : ']'))
                break;
            at++;
            open >>= 1;
            depth--;
        }
        if (*at != ',')
            return NULL;
        at = blank(at + 1, end);
        if ((open & 1) && !(at = key_end(at, end)))
            return NULL;
    }
}

static const u8 *read_int(const u8 *at, const u8 *stop, Value *out)
{
    int negative = *at == '-';
    int64_t value = 0;
    at += negative;
    if (stop - at > DIGITS_MAX || (negative && *at == '0'))
        return NULL;
    for (; at < stop; at++)
        value = value * 10 + (*at - '0');
    out->bits = negative ? -value : value;
    out->kind = INT;
    return stop;
}

/* A whole number of few digits, as most are; NULL: it may be another one. */
static const u8 *short_int(const u8 *at, Value *out)
{
    const u8 *first = at;
    int64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (at - first == DIGITS_MAX)
            return NULL;
        value = value * 10 + (*at - '0');
    }
    if (at == first || (*first == '0' && at - first > 1) || *at == '.' || *at == 'e' || *at == 'E')
        return NULL;
    out->bits = value;
    out->kind = INT;
    return at;
}

static const u8 *read_float(const u8 *at, const u8 *stop, Value *out)
{
    char text[NUMBER_MAX + 1];
    size_t length = (size_t)(stop - at);
    double value;
    if (length > NUMBER_MAX)
        return NULL;
    memcpy(text, at, length);
    text[length] = 0;
    value = PyOS_string_to_double(text, NULL, NULL); /* no locale, and rounded correctly */
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    if (value - value != 0) /* infinite */
        return NULL;
    memcpy(&out->bits, &value, sizeof value);
    out->kind = FLOAT;
    return stop;
}

/* Few digits of µs with few decimals, as most are; NULL: it may be another number. */
static const u8 *short_time(const u8 *at, int64_t *ns)
{
    const u8 *first = at;
    int64_t value = 0;
    int place = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (at - first == US_DIGITS_MAX)
            return NULL;
        value = value * 10 + (*at - '0');
    }
    if (at == first || (*first == '0' && at - first > 1) || value > US_MAX)
        return NULL;
    if (*at == '.') {
        for (at++; place < 3 && *at >= '0' && *at <= '9'; at++, place++)
            value = value * 10 + (*at - '0');
        if (!place)
            return NULL;
    }
    if ((*at >= '0' && *at <= '9') || *at == 'e' || *at == 'E')
        return NULL;
    for (; place < 3; place++)
        value *= 10;
    *ns = value;
    return at;
}

/* The digits of µs as whole ns, rounded half up; exact, because no float is involved. */
static const u8 *read_time(const u8 *at, int64_t *ns)
{
    int negative = *at == '-', is_float, place;
    const u8 *stop = short_time(at, ns), *first = at + negative;
    int64_t value = 0;
    if (stop || !(stop = number_end(at, &is_float)))
        return stop;
    for (at = first; *at >= '0' && *at <= '9'; at++) {
        if (at - first >= US_DIGITS_MAX)
            return NULL;
        value = value * 10 + (*at - '0');
    }
    if (value > US_MAX)
        return NULL;
    if (*at == '.')
        at++;
    for (place = 0; place < 3; place++) {
        int is_digit = at < stop && *at >= '0' && *at <= '9';
        value = value * 10 + (is_digit ? *at - '0' : 0);
        at += is_digit;
    }
    if (at < stop && *at >= '5' && *at <= '9') {
        int is_tie = *at++ == '5';
        for (; at < stop && *at >= '0' && *at <= '9'; at++)
            is_tie &= *at == '0';
        value += !(negative && is_tie);
    } else {
        at = digits(at);
    }
    if (at != stop) /* an exponent */
        return NULL;
    *ns = negative ? -value : value;
    return stop;
}

/* ---- The scanner ---- */

/* A column of numbers or ids, and what they are; the kinds that are among them are bits of `seen`. */
typedef struct {
    int64_t *bits;
    u8 *kinds;
    int seen;
} Numbers;

typedef struct {
    u8 takes;         /* AS_NUMBER … AS_ALL */
    u8 key_count;     /* the value is that of the first key that has one; 0: that of `args` itself */
    u8 first_key;
    Numbers numbers;  /* of numbers and ids; of all arguments two of `bits` each: where they begin and
                         end in the text, 0 and 0: there are none */
    int32_t *codes;   /* of texts; -1: there is none */
} Column;

typedef struct {
    u8 *text;
    size_t size;
    u8 takes;
} Key;

/* The events of a group, of which each column has room for as many as any other. */
typedef struct {
    Column columns[KEYS_MAX];
    int column_count;
    int call_from; /* from here on the columns are parts of the call; -1: there is none */
    Key keys[KEYS_MAX];
    int key_count;
    u8 places[SLOTS]; /* number of a key + 1, by its spelling */
    int is_moment; /* has an id and no duration */
    int32_t *name, *phase, *call;
    Numbers pid, tid, id;
    int64_t *start, *dur;
    u8 *timed;
    size_t count, capacity;
} Group;

/* What stands between two values of an object mostly stands there as it did before. A step is this
   text, from behind a value to the next one; with the steps after it, it is a tree. A phase and a
   category, on which it depends what the others mean, are part of the text. */
typedef struct {
    u8 *text;
    size_t size;
    int what;            /* the field or the key whose value follows, SKIP or END */
    int32_t code;        /* of a phase or a category */
    int32_t first, next; /* the first step after it, and another one from the same place; 0: none */
} Step;

/* What a value may be of: a field of an event, or the number of a key of its arguments. */
enum { END = -2, SKIP = -1, NAME, START, DUR, PID, TID, ID, PHASE, CATEGORY, ARGS };

typedef struct {
    PyObject_HEAD
    PyObject *group_of;
    uint64_t seed;
    Dictionary texts, raws, calls, pairs;
    Buffer pair_groups; /* int32_t of each pair of a phase and a category: its group, or -1 */
    Buffer pair_counts; /* size_t, in the text that is scanned */
    Buffer touched;     /* int32_t: the pairs in it, in order */
    Buffer order;       /* int32_t: the groups in it, in order */
    Group *groups;
    int group_count;
    const u8 *text; /* what is scanned */
    int32_t last_phase, last_category, last_pair; /* the pair of the event before; -1: none */
    int32_t last_name; /* the name of the event before */
    Step *steps; /* the first ones have no text: the beginnings of events, and of arguments by group */
    int32_t step_count;
    int32_t guesses[GUESSES]; /* the text or JSON that came last after another one, at some place */
    int failed; /* Python could not say of which group a pair is */
} Scanner;

typedef struct {
    int32_t phase, category, name, pair, group;
    int32_t last; /* the code of what was read before, by which the next text is guessed */
    Value pid, tid, id;
    int64_t start, dur;
    int has_start, has_dur, has_args;
    const u8 *whole, *whole_end; /* all arguments; NULL: there are none */
    Value args[KEYS_MAX];
} Event;

/* An error of Python's is set; nothing else is wrong. */
#define FAILED ((const u8 *)-1)

static int is_bad(const u8 *at)
{
    return !at || at == FAILED;
}

static const u8 *short_of_memory(int32_t code)
{
    if (code == NO_MEMORY) {
        PyErr_NoMemory();
        return FAILED;
    }
    return NULL;
}

static int32_t empty_text(Scanner *self)
{
    return code_of(&self->texts, NULL, 0, self->seed);
}

/* The place of a guess of what follows the text of a code; `where` tells two places apart. */
static int32_t *guess_after(Scanner *self, int32_t code, int32_t where)
{
    uint32_t hash = ((uint32_t)code * 0x9E3779B1u) ^ ((uint32_t)where * 0x85EBCA6Bu);
    return &self->guesses[(hash ^ hash >> 15) % GUESSES];
}

/* From what follows the guess to behind it, if that is what stands here. A text that was read once
   is whole, and so is JSON where a bracket or a quote begins it. */
static const u8 *guessed(const Dictionary *in, int32_t code, const u8 *at, const u8 *end, size_t most,
                         int is_quoted)
{
    const u8 *word;
    size_t size;
    if (code >= in->count)
        return NULL;
    word = word_of(in, code, &size);
    if (size > most || (size_t)(end - at) < size + 2)
        return NULL;
    if (is_quoted)
        return *at == '"' && at[size + 1] == '"' && !memcmp(at + 1, word, size) ? at + size + 2 : NULL;
    return (*at == '[' || *at == '{' || *at == '"') && !memcmp(at, word, size) ? at + size : NULL;
}

static const u8 *read_text(Scanner *self, const u8 *at, const u8 *end, size_t most, int32_t *guess,
                           int32_t *code)
{
    int escaped = 0;
    const u8 *stop = guessed(&self->texts, *guess, at, end, most, 1);
    if (stop) {
        *code = *guess;
        return stop;
    }
    if (*at != '"' || !(stop = string_end(at + 1, end, &escaped)))
        return NULL;
    if ((size_t)(stop - at - 1) > most)
        return NULL;
    *code = code_of(&self->texts, at + 1, (size_t)(stop - at - 1), self->seed);
    if (*code < 0)
        return short_of_memory(*code);
    *guess = *code;
    return stop + 1;
}

static const u8 *read_raw(Scanner *self, const u8 *at, const u8 *end, int32_t *guess, Value *out)
{
    const u8 *stop = guessed(&self->raws, *guess, at, end, SIZE_MAX - 2, 0);
    int32_t code = *guess;
    if (!stop) {
        if (!(stop = value_end(at, end)))
            return NULL;
        code = code_of(&self->raws, at, (size_t)(stop - at), self->seed);
        if (code < 0)
            return short_of_memory(code);
        *guess = code;
    }
    out->kind = RAW;
    out->bits = code;
    return stop;
}

static const u8 *read_value(Scanner *self, const u8 *at, const u8 *end, int takes, int32_t *guess,
                            Value *out)
{
    const u8 *stop;
    int32_t code = 0;
    int is_float;
    if (takes == AS_JSON)
        return read_raw(self, at, end, guess, out);
    if (*at == 'n') {
        out->kind = NONE;
        out->bits = 0;
        return literal(at, end, "null", 4);
    }
    if (*at == '"') {
        stop = read_text(self, at, end, SIZE_MAX - 2, guess, &code);
        out->kind = TEXT;
        out->bits = code;
        return stop;
    }
    if (takes == AS_TEXT)
        return NULL;
    if ((stop = short_int(at, out)))
        return stop;
    if (!(stop = number_end(at, &is_float)) || (is_float && takes == AS_ID))
        return NULL;
    return is_float ? read_float(at, stop, out) : read_int(at, stop, out);
}

static size_t place_of(const u8 *text, size_t size)
{
    return size ? (size * 31 + text[0] * 7u + text[size - 1] + text[size / 2] * 3u) % SLOTS : 0;
}

static int key_at(const Group *group, const u8 *text, size_t size)
{
    size_t place = place_of(text, size);
    while (group->places[place]) {
        int number = group->places[place] - 1;
        const Key *key = &group->keys[number];
        if (key->size == size && !memcmp(key->text, text, size))
            return number;
        place = (place + 1) % SLOTS;
    }
    return -1;
}

/* One key of an object, and where its value begins. */
static const u8 *read_key(const u8 *at, const u8 *end, const u8 **key, size_t *size)
{
    int escaped = 0;
    const u8 *stop;
    if (*at != '"' || !(stop = string_end(at + 1, end, &escaped)) || escaped)
        return NULL;
    *key = at + 1;
    *size = (size_t)(stop - at - 1);
    at = blank(stop + 1, end);
    return *at == ':' ? blank(at + 1, end) : NULL;
}

#define IS_KEY(word) (size == sizeof(word) - 1 && !memcmp(key, word, sizeof(word) - 1))

/* Which field of an event a key names. */
static int field_of(const u8 *key, size_t size)
{
    return IS_KEY("name") ? NAME
           : IS_KEY("ts") ? START
           : IS_KEY("dur") ? DUR
           : IS_KEY("pid") ? PID
           : IS_KEY("tid") ? TID
           : IS_KEY("id") ? ID
           : IS_KEY("ph") ? PHASE
           : IS_KEY("cat") ? CATEGORY
           : IS_KEY("args") ? ARGS
                            : SKIP;
}

/* Keep a step from a place, and return its number; 0: there is no room for it. */
static int32_t keep_step(Scanner *self, int32_t from, const Step *found, const u8 *text)
{
    int32_t count = 0, number = self->step_count;
    Step *step = &self->steps[number];
    if (from < 0 || number == STEPS_MAX || found->size > STEP_BYTES_MAX)
        return -1;
    for (int32_t at = self->steps[from].first; at; at = self->steps[at].next)
        if (++count == STEPS_OF_PLACE)
            return -1;
    *step = *found;
    if (!(step->text = malloc(step->size)))
        return -1;
    memcpy(step->text, text, step->size);
    step->next = self->steps[from].first;
    self->steps[from].first = number;
    self->step_count++;
    return number;
}

/* Go on to the next value of an object, or behind its end: from a place, -1 for one that is not kept,
   and from `at`, which `is_first` says is behind the bracket. `group` is that of the arguments; NULL:
   it is an event. */
static const u8 *go_on(Scanner *self, int32_t *place, int is_first, const Group *group, const u8 *at,
                       const u8 *end, Step *found)
{
    const u8 *begin = at, *key;
    size_t size;
    for (int32_t *link = *place < 0 ? NULL : &self->steps[*place].first; link && *link;) {
        Step *step = &self->steps[*link];
        if (step->size <= (size_t)(end - at) && !memcmp(at, step->text, step->size)) {
            int32_t number = *link;
            if (link != &self->steps[*place].first) { /* the next one is mostly like this one */
                *link = step->next;
                step->next = self->steps[*place].first;
                self->steps[*place].first = number;
            }
            *place = number;
            found->what = step->what;
            found->code = step->code;
            return blank(at + step->size, end);
        }
        link = &step->next;
    }
    at = blank(at, end);
    found->code = -1;
    found->first = 0;
    if (*at == '}') {
        found->what = END;
        at++;
    } else {
        if (!is_first) {
            if (*at != ',')
                return NULL;
            at = blank(at + 1, end);
        }
        if (!(at = read_key(at, end, &key, &size)))
            return NULL;
        found->what = group ? key_at(group, key, size) : field_of(key, size);
        if (!group && (found->what == PHASE || found->what == CATEGORY)) {
            int32_t *guess = guess_after(self, 0, found->what);
            if (is_bad(at = read_text(self, at, end, NAME_MAX_BYTES, guess, &found->code)))
                return at;
        }
    }
    found->size = (size_t)(at - begin);
    *place = keep_step(self, *place, found, begin);
    return found->what == END ? at : blank(at, end);
}

static const u8 *read_args(Scanner *self, const u8 *at, const u8 *end, Event *event)
{
    const Group *group = &self->groups[event->group];
    int32_t place = event->group + 1;
    Value skipped;
    Step step;
    for (int number = 0; number < group->key_count; number++)
        event->args[number].kind = NONE;
    if (*at != '{')
        return NULL;
    at++;
    for (int is_first = 1;; is_first = 0) {
        if (is_bad(at = go_on(self, &place, is_first, group, at, end, &step)) || step.what == END)
            return at;
        if (step.what == SKIP) {
            const u8 *stop = short_int(at, &skipped);
            at = stop ? stop : value_end(at, end);
        } else {
            Value *value = &event->args[step.what];
            int32_t *guess = guess_after(self, event->last, step.what);
            at = read_value(self, at, end, group->keys[step.what].takes, guess, value);
            if (value->kind == RAW || value->kind == TEXT)
                event->last = (int32_t)value->bits;
        }
        if (is_bad(at))
            return at;
    }
}

/* The pair of a phase and a category, and its group; Python says once per pair which that is. */
static int find_pair(Scanner *self, Event *event)
{
    int32_t pair[2] = {event->phase, event->category}, group;
    int32_t code;
    size_t phase_size, category_size, none = 0;
    const u8 *phase, *category;
    PyObject *answer;
    if (pair[0] == self->last_phase && pair[1] == self->last_category) {
        event->pair = self->last_pair;
        event->group = ((const int32_t *)self->pair_groups.data)[event->pair];
        return 1;
    }
    code = code_of(&self->pairs, (const u8 *)pair, sizeof pair, self->seed);
    if (code < 0)
        return short_of_memory(code) ? -1 : 0;
    event->pair = code;
    if ((size_t)code == self->pair_groups.size / sizeof group) {
        phase = word_of(&self->texts, pair[0], &phase_size);
        category = word_of(&self->texts, pair[1], &category_size);
        answer = PyObject_CallFunction(self->group_of, "y#y#", phase, (Py_ssize_t)phase_size,
                                       category, (Py_ssize_t)category_size);
        self->failed = 1; /* unless all goes well: pairs and their groups are in step */
        if (!answer)
            return -1;
        group = (int32_t)PyLong_AsLong(answer);
        Py_DECREF(answer);
        if (PyErr_Occurred())
            return -1;
        if (group < -1 || group >= self->group_count) {
            PyErr_SetString(PyExc_ValueError, "no such group");
            return -1;
        }
        if (!reserve(&self->pair_counts, sizeof none)
            || !push(&self->pair_groups, &group, sizeof group)) {
            PyErr_NoMemory();
            return -1;
        }
        push(&self->pair_counts, &none, sizeof none);
        self->failed = 0;
    }
    event->group = ((const int32_t *)self->pair_groups.data)[code];
    self->last_phase = pair[0];
    self->last_category = pair[1];
    self->last_pair = code;
    return 1;
}

/* The arguments of an event. `held` are those that come before what says how to read them. */
static const u8 *read_whole(Scanner *self, const u8 *at, const u8 *end, Event *event,
                            const u8 **held)
{
    *held = NULL;
    if (event->phase >= 0 && event->category >= 0) {
        int found = find_pair(self, event);
        if (found <= 0)
            return found ? FAILED : NULL;
        event->has_args = 1;
        if (event->group < 0 || !self->groups[event->group].key_count)
            return value_end(at, end);
        return read_args(self, at, end, event);
    }
    *held = at;
    return value_end(at, end);
}

/* The value of one of the fields of an event that we read, or of another. */
static const u8 *read_field(Scanner *self, int field, const u8 *at, const u8 *end, Event *event,
                            const u8 **held)
{
    int32_t *guess = guess_after(self, field == NAME ? self->last_name : 0, ARGS + field);
    switch (field) {
    case NAME:
        at = read_text(self, at, end, NAME_MAX_BYTES, guess, &event->name);
        event->last = event->name;
        return at;
    case START:
        event->has_start = 1;
        return read_time(at, &event->start);
    case DUR:
        event->has_dur = 1;
        return read_time(at, &event->dur);
    case PID:
        return read_value(self, at, end, AS_ID, guess, &event->pid);
    case TID:
        return read_value(self, at, end, AS_ID, guess, &event->tid);
    case ID:
        return read_value(self, at, end, AS_ID, guess, &event->id);
    case ARGS:
        event->whole = at;
        return event->whole_end = read_whole(self, at, end, event, held);
    default:
        return value_end(at, end);
    }
}

static const u8 *read_event(Scanner *self, const u8 *at, const u8 *end, Event *event)
{
    const u8 *held = NULL;
    int32_t place = 0;
    Step step;
    if (*at != '{')
        return NULL;
    at++;
    for (int is_first = 1;; is_first = 0) {
        if (is_bad(at = go_on(self, &place, is_first, NULL, at, end, &step)))
            return at;
        if (step.what == END)
            break;
        if (step.what == PHASE || step.what == CATEGORY) {
            if (event->has_args) /* these were read as those of another group */
                return NULL;
            *(step.what == PHASE ? &event->phase : &event->category) = step.code;
        } else if (is_bad(at = read_field(self, step.what, at, end, event, &held))) {
            return at;
        }
    }
    if (event->phase < 0)
        event->phase = empty_text(self);
    if (event->category < 0)
        event->category = empty_text(self);
    if (event->name < 0)
        event->name = empty_text(self);
    if (event->phase < 0 || event->category < 0 || event->name < 0)
        return short_of_memory(NO_MEMORY);
    if (!event->has_args) {
        int found = find_pair(self, event);
        if (found <= 0)
            return found ? FAILED : NULL;
        if (event->group >= 0) {
            for (int number = 0; number < self->groups[event->group].key_count; number++)
                event->args[number].kind = NONE;
            if (held && self->groups[event->group].key_count) {
                const u8 *stop = read_args(self, held, end, event);
                if (is_bad(stop))
                    return stop;
            }
        }
    }
    self->last_name = event->name;
    return at;
}

static Value value_of(const Column *column, const Event *event)
{
    Value value = event->args[column->first_key];
    for (int i = 1; i < column->key_count && value.kind == NONE; i++)
        value = event->args[column->first_key + i];
    return value;
}

static void put(Numbers *column, size_t at, const Value *value)
{
    column->bits[at] = value->kind == NONE ? 0 : value->bits;
    column->kinds[at] = value->kind;
    column->seen |= 1 << value->kind;
}

static void put_column(const Scanner *self, Column *column, size_t at, const Event *event)
{
    Value value;
    if (column->takes == AS_ALL) {
        column->numbers.bits[2 * at] = event->whole ? event->whole - self->text : 0;
        column->numbers.bits[2 * at + 1] = event->whole ? event->whole_end - self->text : 0;
        return;
    }
    value = value_of(column, event);
    if (column->codes)
        column->codes[at] = value.kind == NONE ? -1 : (int32_t)value.bits;
    else
        put(&column->numbers, at, &value);
}

/* How many columns a group has besides the parts of calls. */
static int shown(const Group *group)
{
    return group->call_from < 0 ? group->column_count : group->call_from;
}

#define ENLARGE(array, count) enlarge_array((void **)&(array), (count) * sizeof *(array))

static int enlarge_array(void **array, size_t size)
{
    void *more = realloc(*array, size);
    if (more)
        *array = more;
    return more != NULL;
}

static int enlarge_numbers(Numbers *column, size_t count)
{
    return ENLARGE(column->bits, count) && ENLARGE(column->kinds, count);
}

/* Make room for another event in all columns of a group. */
static int make_room(Group *group)
{
    size_t count = group->capacity ? 2 * group->capacity : 256;
    int good = ENLARGE(group->name, count) && enlarge_numbers(&group->pid, count)
               && enlarge_numbers(&group->tid, count) && ENLARGE(group->start, count)
               && ENLARGE(group->dur, count) && ENLARGE(group->timed, count);
    if (group->is_moment)
        good = good && enlarge_numbers(&group->id, count) && ENLARGE(group->phase, count);
    if (group->call_from >= 0)
        good = good && ENLARGE(group->call, count);
    for (int i = 0; good && i < shown(group); i++) {
        Column *column = &group->columns[i];
        if (column->takes == AS_TEXT || column->takes == AS_JSON)
            good = ENLARGE(column->codes, count);
        else if (column->takes == AS_ALL)
            good = ENLARGE(column->numbers.bits, 2 * count);
        else
            good = enlarge_numbers(&column->numbers, count);
    }
    if (good)
        group->capacity = count;
    return good;
}

/* The code of what was called, and with what: a number for the name and all parts together. Of each
   part there is: its place, what it is, and its number. */
static int32_t call_of(Scanner *self, const Group *group, const Event *event)
{
    int64_t parts[2 * (KEYS_MAX + 1)];
    size_t count = 0;
    parts[count++] = TEXT;
    parts[count++] = event->name;
    for (int i = group->call_from; i < group->column_count; i++) {
        Value value = value_of(&group->columns[i], event);
        if (value.kind == NONE)
            continue;
        parts[count++] = (int64_t)(i - group->call_from + 1) << 8 | value.kind;
        parts[count++] = value.bits;
    }
    return code_of(&self->calls, (const u8 *)parts, count * sizeof *parts, self->seed);
}

static const u8 *keep_event(Scanner *self, const u8 *at, const Event *event)
{
    Group *group;
    size_t row, *counts = (size_t *)self->pair_counts.data;
    if (!counts[event->pair]++ && !push(&self->touched, &event->pair, sizeof event->pair))
        return short_of_memory(NO_MEMORY);
    if (event->group < 0)
        return at;
    group = &self->groups[event->group];
    row = group->count;
    if ((!row && !push(&self->order, &event->group, sizeof event->group))
        || (row == group->capacity && !make_room(group)))
        return short_of_memory(NO_MEMORY);
    group->count++;
    group->name[row] = event->name;
    put(&group->pid, row, &event->pid);
    put(&group->tid, row, &event->tid);
    group->start[row] = event->start;
    group->dur[row] = event->dur;
    group->timed[row] = (u8)(event->has_start && (event->has_dur || group->is_moment));
    if (group->is_moment) {
        put(&group->id, row, &event->id);
        group->phase[row] = event->phase;
    }
    for (int i = 0; i < shown(group); i++)
        put_column(self, &group->columns[i], row, event);
    if (group->call_from >= 0) {
        int32_t call = call_of(self, group, event);
        if (call < 0)
            return short_of_memory(call);
        group->call[row] = call;
    }
    return at;
}

static const u8 *read_events(Scanner *self, const u8 *at, const u8 *end, Py_ssize_t *count)
{
    Event event;
    at = blank(at, end);
    if (*at != '[')
        return NULL;
    at = blank(at + 1, end);
    if (*at == ']')
        return blank(at + 1, end);
    for (;;) {
        event.phase = event.category = event.name = event.pair = event.group = event.last = -1;
        event.pid.kind = event.tid.kind = event.id.kind = NONE;
        event.start = event.dur = 0;
        event.has_start = event.has_dur = event.has_args = 0;
        event.whole = event.whole_end = NULL;
        at = read_event(self, at, end, &event);
        if (is_bad(at))
            return at;
        at = keep_event(self, at, &event);
        if (is_bad(at))
            return at;
        ++*count;
        at = blank(at, end);
        if (*at == ']')
            return blank(at + 1, end);
        if (*at != ',')
            return NULL;
        at = blank(at + 1, end);
    }
}

static void clear_columns(Scanner *self)
{
    size_t *counts = (size_t *)self->pair_counts.data;
    const int32_t *touched = (const int32_t *)self->touched.data;
    for (size_t i = 0; i < self->touched.size / sizeof *touched; i++)
        counts[touched[i]] = 0;
    self->touched.size = self->order.size = 0;
    for (int number = 0; number < self->group_count; number++) {
        Group *group = &self->groups[number];
        group->count = 0;
        group->pid.seen = group->tid.seen = group->id.seen = 0;
        for (int i = 0; i < group->column_count; i++)
            group->columns[i].numbers.seen = 0;
    }
}

/* ---- What Python sees ---- */

static int append(PyObject *list, PyObject *item) /* takes the item over */
{
    int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return !failed;
}

static int append_bytes(PyObject *list, const void *data, size_t size)
{
    return append(list, PyBytes_FromStringAndSize(data, (Py_ssize_t)size));
}

static int append_numbers(PyObject *list, const Numbers *column, size_t count)
{
    return append_bytes(list, column->bits, count * sizeof *column->bits)
           && append_bytes(list, column->kinds, count) && append(list, PyLong_FromLong(column->seen));
}

static PyObject *group_buffers(const Group *group, int number)
{
    PyObject *found = PyList_New(0);
    size_t count = group->count, moments = group->is_moment ? count : 0;
    size_t calls = group->call_from < 0 ? 0 : count;
    int good = found && append_bytes(found, group->name, count * sizeof *group->name)
               && append_numbers(found, &group->pid, count)
               && append_numbers(found, &group->tid, count)
               && append_bytes(found, group->start, count * sizeof *group->start)
               && append_bytes(found, group->dur, count * sizeof *group->dur)
               && append_bytes(found, group->timed, count)
               && append_numbers(found, &group->id, moments)
               && append_bytes(found, group->phase, moments * sizeof *group->phase)
               && append_bytes(found, group->call, calls * sizeof *group->call);
    for (int i = 0; good && i < shown(group); i++) {
        const Column *column = &group->columns[i];
        if (column->codes)
            good = append_bytes(found, column->codes, count * sizeof *column->codes);
        else if (column->takes == AS_ALL)
            good = append_bytes(found, column->numbers.bits, 2 * count * sizeof(int64_t));
        else
            good = append_numbers(found, &column->numbers, count);
    }
    if (!good)
        Py_CLEAR(found);
    return found ? Py_BuildValue("iN", number, found) : NULL;
}

static PyObject *pair_counts(Scanner *self)
{
    const int32_t *touched = (const int32_t *)self->touched.data;
    PyObject *found = PyList_New(0);
    int good = found != NULL;
    for (size_t i = 0; good && i < self->touched.size / sizeof *touched; i++) {
        int32_t pair[2];
        size_t size, sizes[2];
        const u8 *texts[2];
        if (((const int32_t *)self->pair_groups.data)[touched[i]] >= 0)
            continue;
        memcpy(pair, word_of(&self->pairs, touched[i], &size), sizeof pair);
        texts[0] = word_of(&self->texts, pair[0], &sizes[0]);
        texts[1] = word_of(&self->texts, pair[1], &sizes[1]);
        good = append(found, Py_BuildValue("y#y#n", texts[0], (Py_ssize_t)sizes[0], texts[1],
                                           (Py_ssize_t)sizes[1],
                                           (Py_ssize_t)((size_t *)self->pair_counts.data)[touched[i]]));
    }
    if (!good)
        Py_CLEAR(found);
    return found;
}

static PyObject *scanner_scan(PyObject *object, PyObject *text)
{
    Scanner *self = (Scanner *)object;
    char *bytes;
    Py_ssize_t size, count = 0;
    const u8 *end, *at;
    PyObject *skipped, *groups;
    int good;
    if (PyBytes_AsStringAndSize(text, &bytes, &size))
        return NULL;
    if (self->failed) {
        PyErr_SetString(PyExc_RuntimeError, "a scanner that failed is of no more use");
        return NULL;
    }
    clear_columns(self);
    self->text = (const u8 *)bytes;
    end = self->text + size;
    at = read_events(self, self->text, end, &count);
    if (at == FAILED)
        return NULL;
    if (at != end)
        Py_RETURN_NONE;
    skipped = pair_counts(self);
    groups = PyList_New(0);
    good = skipped && groups;
    for (size_t i = 0; good && i < self->order.size / sizeof(int32_t); i++) {
        int32_t number = ((const int32_t *)self->order.data)[i];
        good = append(groups, group_buffers(&self->groups[number], number));
    }
    clear_columns(self);
    if (good)
        return Py_BuildValue("nNN", count, skipped, groups);
    Py_XDECREF(skipped);
    Py_XDECREF(groups);
    return NULL;
}

static PyObject *scanner_words(PyObject *object, PyObject *args)
{
    Scanner *self = (Scanner *)object;
    const Dictionary *all[] = {&self->texts, &self->raws, &self->calls};
    int which;
    Py_ssize_t first;
    PyObject *found;
    if (!PyArg_ParseTuple(args, "in", &which, &first))
        return NULL;
    if (which < 0 || which > 2 || first < 0) {
        PyErr_SetString(PyExc_ValueError, "no such dictionary");
        return NULL;
    }
    found = PyList_New(0);
    for (Py_ssize_t code = first; found && code < all[which]->count; code++) {
        size_t size;
        const u8 *word = word_of(all[which], (int32_t)code, &size);
        if (!append(found, PyBytes_FromStringAndSize((const char *)word, (Py_ssize_t)size)))
            Py_CLEAR(found);
    }
    return found;
}

static int add_key(Group *group, int takes, PyObject *key)
{
    char *text;
    Py_ssize_t size;
    size_t place;
    Key *own;
    if (PyBytes_AsStringAndSize(key, &text, &size))
        return 0;
    if (group->key_count == KEYS_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many keys");
        return 0;
    }
    own = &group->keys[group->key_count];
    own->text = malloc((size_t)size + 1);
    if (!own->text) {
        PyErr_NoMemory();
        return 0;
    }
    memcpy(own->text, text, (size_t)size);
    own->size = (size_t)size;
    own->takes = (u8)takes;
    place = place_of(own->text, own->size);
    while (group->places[place])
        place = (place + 1) % SLOTS;
    group->places[place] = (u8)++group->key_count;
    return 1;
}

static int add_columns(Group *group, PyObject *columns)
{
    Py_ssize_t count = PySequence_Size(columns);
    for (Py_ssize_t i = 0; i < count; i++) {
        Column *column = &group->columns[group->column_count];
        PyObject *item, *keys = NULL;
        int takes, good = 1;
        if (group->column_count == KEYS_MAX) {
            PyErr_SetString(PyExc_ValueError, "too many columns");
            return 0;
        }
        if (!(item = PySequence_GetItem(columns, i)))
            return 0;
        if (!PyArg_ParseTuple(item, "iO!", &takes, &PyTuple_Type, &keys) || takes < AS_NUMBER
            || takes > AS_ALL || !PyTuple_Size(keys) != (takes == AS_ALL)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "no such column");
            good = 0;
        }
        column->takes = (u8)takes;
        column->first_key = (u8)group->key_count;
        for (Py_ssize_t k = 0; good && k < PyTuple_Size(keys); k++)
            good = add_key(group, takes, PyTuple_GetItem(keys, k));
        column->key_count = (u8)(group->key_count - column->first_key);
        group->column_count++;
        Py_DECREF(item);
        if (!good)
            return 0;
    }
    return count >= 0;
}

static int add_groups(Scanner *self, PyObject *groups)
{
    Py_ssize_t count = PySequence_Size(groups);
    if (count < 0)
        return 0;
    if (count > GROUPS_MAX || !(self->groups = calloc((size_t)count + 1, sizeof *self->groups))) {
        PyErr_SetString(PyExc_ValueError, "too many groups");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Group *group = &self->groups[i];
        PyObject *item = PySequence_GetItem(groups, i), *columns, *call;
        int good = item && PyArg_ParseTuple(item, "pOO", &group->is_moment, &columns, &call)
                   && add_columns(group, columns);
        self->group_count++;
        group->call_from = -1;
        if (good && PySequence_Size(call) > 0) {
            group->call_from = group->column_count;
            good = add_columns(group, call);
        }
        Py_XDECREF(item);
        if (!good)
            return 0;
    }
    return 1;
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *groups, *group_of;
    unsigned long long seed;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scanner *self;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOK", &groups, &group_of, &seed))
        return NULL;
    if (!(self = (Scanner *)allocate(type, 0)))
        return NULL;
    self->seed = seed;
    self->last_phase = self->last_category = self->last_pair = -1;
    self->group_of = Py_NewRef(group_of);
    if (!add_groups(self, groups)) {
        Py_DECREF(self);
        return NULL;
    }
    self->step_count = self->group_count + 1;
    if (!(self->steps = calloc(STEPS_MAX, sizeof *self->steps))) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void free_numbers(Numbers *column)
{
    free(column->bits);
    free(column->kinds);
}

static void scanner_dealloc(PyObject *object)
{
    Scanner *self = (Scanner *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int number = 0; number < self->group_count; number++) {
        Group *group = &self->groups[number];
        free(group->name);
        free(group->phase);
        free(group->call);
        free(group->start);
        free(group->dur);
        free(group->timed);
        free_numbers(&group->pid);
        free_numbers(&group->tid);
        free_numbers(&group->id);
        for (int i = 0; i < group->column_count; i++) {
            free(group->columns[i].codes);
            free_numbers(&group->columns[i].numbers);
        }
        for (int i = 0; i < group->key_count; i++)
            free(group->keys[i].text);
    }
    free(self->groups);
    for (int32_t i = 0; i < self->step_count && self->steps; i++)
        free(self->steps[i].text);
    free(self->steps);
    forget(&self->texts);
    forget(&self->raws);
    forget(&self->calls);
    forget(&self->pairs);
    free(self->pair_groups.data);
    free(self->pair_counts.data);
    free(self->touched.data);
    free(self->order.data);
    Py_XDECREF(self->group_of);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef scanner_methods[] = {
    {"scan", scanner_scan, METH_O,
     "Return (count, skipped, groups) of a JSON array of events; None: not understood."},
    {"words", scanner_words, METH_VARARGS,
     "Return the words of dictionary 0, 1 or 2 from a code on."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, (void *)"Scans pieces of a file; keeps its dictionaries from one to the next."},
    {Py_tp_new, (void *)scanner_new},
    {Py_tp_dealloc, (void *)scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

static PyType_Spec scanner_spec = {
    "pyprof2.parsers._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, scanner_slots,
};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &scanner_spec, NULL);
    int failed = !type || PyModule_AddObjectRef(module, "Scanner", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)fill_module}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_scan", "The compiled scanner of the Kineto reader.", 0, NULL,
    module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModuleDef_Init(&module_def);
}
