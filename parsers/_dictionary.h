/* Buffers that grow, and dictionaries: what the compiled readers keep their columns and texts in.

   Functions return 0 when memory is short. */

#ifndef PYPROF2_DICTIONARY_H
#define PYPROF2_DICTIONARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char u8;

enum { PROBES_MAX = 128 };

typedef struct {
    u8 *data;
    size_t size, capacity;
} Buffer;

static inline int reserve(Buffer *buffer, size_t more)
{
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    u8 *data;
    if (more <= buffer->capacity - buffer->size)
        return 1;
    if (more > SIZE_MAX / 4 || buffer->size > SIZE_MAX / 4)
        return 0;
    while (capacity - buffer->size < more)
        capacity *= 2;
    data = realloc(buffer->data, capacity);
    if (!data)
        return 0;
    buffer->data = data;
    buffer->capacity = capacity;
    return 1;
}

static inline int push(Buffer *buffer, const void *bytes, size_t size)
{
    if (!reserve(buffer, size))
        return 0;
    if (size)
        memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    return 1;
}

typedef struct {
    Buffer texts;   /* one behind the other */
    Buffer ends;    /* size_t: where each ends */
    Buffer hashes;  /* uint64_t of each */
    uint32_t *slots; /* code + 1, 0 for free; a power of two of them */
    size_t slot_count;
    int32_t count;
} Dictionary;

static uint64_t hash_of(const u8 *at, size_t size, uint64_t seed)
{
    uint64_t hash = seed ^ (size * UINT64_C(0x9E3779B97F4A7C15)), word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0xFF51AFD7ED558CCD);
        hash ^= hash >> 32;
    }
    if (size) {
        for (word = 0; size; size--)
            word = word << 8 | at[size - 1];
        hash = (hash ^ word) * UINT64_C(0xFF51AFD7ED558CCD);
        hash ^= hash >> 32;
    }
    /* Numbered texts differ in the last bytes of a word, and so in the upper half of the hash alone. */
    hash = (hash ^ hash >> 29) * UINT64_C(0xC4CEB9FE1A85EC53);
    return hash ^ hash >> 32;
}

static const u8 nothing[1]; /* the address of a text without bytes */

static const u8 *word_of(const Dictionary *in, int32_t code, size_t *size)
{
    const size_t *ends = (const size_t *)in->ends.data;
    size_t begin = code ? ends[code - 1] : 0;
    *size = ends[code] - begin;
    return *size ? in->texts.data + begin : nothing;
}

static int enlarge(Dictionary *in)
{
    size_t count = in->slot_count ? in->slot_count * 2 : 1024;
    const uint64_t *hashes = (const uint64_t *)in->hashes.data;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return 0;
    for (int32_t code = 0; code < in->count; code++) {
        size_t at = hashes[code] & (count - 1);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = (uint32_t)code + 1;
    }
    free(in->slots);
    in->slots = slots;
    in->slot_count = count;
    return 1;
}

enum { NO_MEMORY = -1, TOO_ALIKE = -2 };

/* The code of a text; TOO_ALIKE where somebody made texts whose hashes are alike. */
static int32_t code_of(Dictionary *in, const u8 *text, size_t size, uint64_t seed)
{
    uint64_t hash;
    size_t at, end;
    if (!text)
        text = nothing;
    hash = hash_of(text, size, seed);
    if (((size_t)in->count + 1) * 2 > in->slot_count && !enlarge(in))
        return NO_MEMORY;
    at = hash & (in->slot_count - 1);
    for (int probe = 0; in->slots[at]; probe++) {
        int32_t code = (int32_t)(in->slots[at] - 1);
        size_t found;
        if (((const uint64_t *)in->hashes.data)[code] == hash) {
            const u8 *word = word_of(in, code, &found);
            if (found == size && (!size || !memcmp(word, text, size)))
                return code;
        }
        if (probe == PROBES_MAX)
            return TOO_ALIKE;
        at = (at + 1) & (in->slot_count - 1);
    }
    if (in->count == INT32_MAX)
        return TOO_ALIKE;
    end = in->texts.size + size;
    if (!reserve(&in->ends, sizeof end) || !reserve(&in->hashes, sizeof hash)
        || !push(&in->texts, text, size))
        return NO_MEMORY;
    push(&in->ends, &end, sizeof end);
    push(&in->hashes, &hash, sizeof hash);
    in->slots[at] = (uint32_t)in->count + 1;
    return in->count++;
}

static void forget(Dictionary *in)
{
    free(in->texts.data);
    free(in->ends.data);
    free(in->hashes.data);
    free(in->slots);
}

#endif
