/* Rows of a table of an SQLite file, from its pages: columns of whole numbers and of text.

   Only what is plain is read: what is written otherwise than a table of numbers and short texts is
   (values on pages of their own, fractions, numbers as text, columns that were added later), or is
   damaged, gives None, and SQLite itself reads it. So nothing here refuses a file. All that leads
   anywhere is checked against the end of its page; see https://www.sqlite.org/fileformat2.html. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

enum { COLUMNS = 64, LEAF = 13, INNER = 5, LEAF_HEAD = 8, INNER_HEAD = 12, LEAST = 480 };

/* The largest row of which nothing is on another page leaves so many bytes of its page. */
enum { NEVER_USED = 35 };

typedef struct {
    int64_t field; /* of the rows */
    int is_text;
    PyObject *values, *more; /* numbers, and bits of those that are known; or offsets, and text */
    char *first, *second;
    Py_ssize_t unknown, length;
} Column;

static unsigned two(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static int varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t found = 0;
    for (int i = 0; i < 9; i++) {
        if (*at >= end)
            return 0;
        uint8_t byte = *(*at)++;
        if (i == 8) {
            *value = found << 8 | byte;
            return 1;
        }
        found = found << 7 | (byte & 0x7f);
        if (!(byte & 0x80))
            break;
    }
    *value = found;
    return 1;
}

/* The number of a value of type 1 to 6; 8 and 9 are 0 and 1. */
static int64_t number(uint64_t type, const uint8_t *at, uint64_t size)
{
    if (type >= 8)
        return (int64_t)type - 8;
    uint64_t found = at[0] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < size; i++)
        found = found << 8 | at[i];
    int64_t result;
    memcpy(&result, &found, sizeof result);
    return result;
}

/* Put a value into row `at` of its column; `most` is how much text there is room for. */
static int put(Column *of, Py_ssize_t at, uint64_t type, const uint8_t *value, uint64_t size,
               Py_ssize_t most)
{
    if (of->is_text) {
        if (type) {
            if (type < 13 || type % 2 == 0 || size > (uint64_t)(most - of->length))
                return 0;
            memcpy(of->second + of->length, value, size);
            of->length += (Py_ssize_t)size;
        }
        int32_t end = (int32_t)of->length;
        memcpy(of->first + (at + 1) * (Py_ssize_t)sizeof end, &end, sizeof end);
        return 1;
    }
    int64_t found = 0;
    if (type) {
        if (type == 7 || type > 9)
            return 0;
        found = number(type, value, size);
        of->second[at / 8] |= (char)(1 << at % 8);
    } else
        of->unknown++;
    memcpy(of->first + at * (Py_ssize_t)sizeof found, &found, sizeof found);
    return 1;
}

static int row(const uint8_t *page, unsigned pointer, Py_ssize_t usable, Column *columns, int count,
               Py_ssize_t at, Py_ssize_t most)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
    const uint8_t *cell = page + pointer, *end = page + usable;
    uint64_t payload, id, head_size, type;
    if (!varint(&cell, end, &payload) || !varint(&cell, end, &id)
        || payload > (uint64_t)(usable - NEVER_USED) || payload > (uint64_t)(end - cell))
        return 0;
    const uint8_t *head = cell;
    end = cell + payload;
    if (!varint(&head, end, &head_size) || head_size > payload)
        return 0;
    const uint8_t *head_end = cell + head_size, *value = head_end;
    int next = 0;
    for (int64_t field = 0; next < count; field++) {
        if (!varint(&head, head_end, &type) || type == 10 || type == 11)
            return 0;
        uint64_t size = type < 10 ? sizes[type] : (type - 12) / 2;
        if (size > (uint64_t)(end - value))
            return 0;
        if (columns[next].field == field
            && !put(&columns[next++], at, type, value, size, most))
            return 0;
        value += size;
    }
    return 1;
}

static int prepare(Column *of, Py_ssize_t rows, Py_ssize_t most)
{
    Py_ssize_t first = of->is_text ? (rows + 1) * 4 : rows * 8;
    Py_ssize_t second = of->is_text ? most : (rows + 7) / 8;
    of->values = PyBytes_FromStringAndSize(NULL, first);
    of->more = PyBytes_FromStringAndSize(NULL, second);
    if (!of->values || !of->more)
        return 0;
    of->first = PyBytes_AsString(of->values);
    of->second = PyBytes_AsString(of->more);
    if (of->is_text)
        memset(of->first, 0, 4);
    else
        memset(of->second, 0, (size_t)second);
    return 1;
}

/* How many rows the leaves have; -1 if one is none. */
static Py_ssize_t count_rows(const uint8_t *data, Py_ssize_t length, Py_ssize_t page_size,
                             Py_ssize_t usable)
{
    Py_ssize_t rows = 0;
    for (Py_ssize_t at = 0; at < length; at += page_size) {
        Py_ssize_t cells = two(data + at + 3);
        if (data[at] != LEAF || LEAF_HEAD + 2 * cells > usable)
            return -1;
        rows += cells;
    }
    return rows;
}

static int fill(const uint8_t *data, Py_ssize_t length, Py_ssize_t page_size, Py_ssize_t usable,
                Column *columns, int count)
{
    Py_ssize_t done = 0;
    for (const uint8_t *page = data; page < data + length; page += page_size)
        for (unsigned cell = 0, cells = two(page + 3); cell < cells; cell++, done++) {
            unsigned pointer = two(page + LEAF_HEAD + 2 * cell);
            if (pointer >= usable
                || !row(page, pointer, usable, columns, count, done, length))
                return 0;
        }
    return 1;
}

static PyObject *found_columns(Column *columns, int count, Py_ssize_t rows)
{
    PyObject *result = PyList_New(0);
    for (int i = 0; result && i < count; i++) {
        Column *of = &columns[i];
        PyObject *each = Py_BuildValue("(nOO)", of->unknown, of->values, of->more);
        if (!each || PyList_Append(result, each))
            Py_CLEAR(result);
        Py_XDECREF(each);
    }
    return result ? Py_BuildValue("(nN)", rows, result) : NULL;
}

static PyObject *rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, wanted;
    Py_ssize_t page_size, usable;
    Column columns[COLUMNS] = {{0}};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nny*", &data, &page_size, &usable, &wanted))
        return NULL;
    Py_ssize_t count = wanted.len / (Py_ssize_t)sizeof(int64_t);
    if (usable < LEAST || usable > page_size || data.len % page_size || data.len > INT32_MAX
        || count > COLUMNS || wanted.len % (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "no whole pages, or too many columns");
        goto end;
    }
    Py_ssize_t found = count_rows(data.buf, data.len, page_size, usable);
    if (found < 0) {
        result = Py_NewRef(Py_None);
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t code;
        memcpy(&code, (char *)wanted.buf + i * (Py_ssize_t)sizeof code, sizeof code);
        columns[i].field = code >> 1;
        columns[i].is_text = (int)(code & 1);
        if (!prepare(&columns[i], found, data.len))
            goto end;
    }
    if (fill(data.buf, data.len, page_size, usable, columns, (int)count))
        result = found_columns(columns, (int)count, found);
    else
        result = Py_NewRef(Py_None);
end:
    for (int i = 0; i < COLUMNS; i++) {
        Py_XDECREF(columns[i].values);
        Py_XDECREF(columns[i].more);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&wanted);
    return result;
}

/* The pages below an inner page, in order; None if it is no such page. */
static PyObject *children(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer page;
    if (!PyArg_ParseTuple(args, "y*", &page))
        return NULL;
    const uint8_t *data = page.buf;
    Py_ssize_t cells = page.len >= INNER_HEAD ? two(data + 3) : 0;
    PyObject *result = NULL;
    int is_inner = page.len >= INNER_HEAD && data[0] == INNER && INNER_HEAD + 2 * cells <= page.len;
    if (is_inner)
        result = PyList_New(0);
    for (Py_ssize_t i = 0; result && i <= cells; i++) {
        Py_ssize_t at = i < cells ? (Py_ssize_t)two(data + INNER_HEAD + 2 * i) : LEAF_HEAD;
        if (at + 4 > page.len) {
            Py_CLEAR(result);
            is_inner = 0;
            break;
        }
        unsigned long number = (unsigned long)two(data + at) << 16 | two(data + at + 2);
        PyObject *each = PyLong_FromUnsignedLong(number);
        if (!each || PyList_Append(result, each))
            Py_CLEAR(result);
        Py_XDECREF(each);
    }
    PyBuffer_Release(&page);
    return result || is_inner ? result : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"rows", rows, METH_VARARGS, "leaves, page size, usable size, columns"},
    {"children", children, METH_VARARGS, "page"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_sqlite_pages", "Rows of tables from the pages of SQLite files.", 0,
    functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sqlite_pages(void)
{
    return PyModuleDef_Init(&definition);
}
