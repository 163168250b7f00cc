/*
 * pg_short.c: texts in short: what the columns of a row of history say is not stored again in its texts.
 *
 * An event says first whose it is, when it was written and by which version.  The columns of its row say the same, and
 * what is left is a third of the text.  Of all events of a row or of none:
 *
 *     {"event_id":3,"source_event_id":2,"instance_id":"o-1","execution_id":1,"timestamp_ms":1700000000000,
 *      "duroxide_version":"0.1.0","type":"ActivityCompleted","result":"7"}
 *
 * is in a row with written = '1700000000000 0.1.0' the line
 *
 *     2:ActivityCompleted","result":"7"}
 *
 * and without the number where there is no source.  Everything is compared byte by byte with what the statements that
 * read it put together (DUR__PG_EVENT_IN_FULL), so a text that looks otherwise in any way is stored as it is.
 */
#include "provider/postgres/pg_turn.h"

#define TAKES(text, literal) takes(text, literal, sizeof(literal) - 1)

static bool takes(dur_text *text, const char *start, size_t size) {
    if (text->size < size || memcmp(text->data, start, size) != 0) return false;
    *text = (dur_text){ text->data + size, text->size - size };
    return true;
}

/* As the server writes it: without a sign, a zero before it, or too many digits. */
static bool takes_number(dur_text *text, uint64_t *out) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < text->size && text->data[digits] >= '0' && text->data[digits] <= '9'; digits++) {
        if (digits == 18 || (digits == 1 && value == 0)) return false;
        value = value * 10 + (uint64_t)(text->data[digits] - '0');
    }
    *text = (dur_text){ text->data + digits, text->size - digits };
    *out = value;
    return digits > 0;
}

static bool takes_this_number(dur_text *text, uint64_t wanted) {
    uint64_t value;
    return takes_number(text, &value) && value == wanted;
}

/* Up to its quote; it is kept in a column with a space before it. */
static bool takes_version(dur_text *text, dur_text *out) {
    size_t size = 0;
    while (size < text->size && text->data[size] != '"') {
        if (text->data[size] == ' ' || text->data[size] == '\\') return false;
        size++;
    }
    *out = (dur_text){ text->data, size };
    *text = (dur_text){ text->data + size, text->size - size };
    return size > 0 && size <= DUR__PG_VERSION_MAX;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool dur__pg_event_short(const dur_turn_commit *turn, const dur_event_row *event, dur__pg_event_text *out) {
    dur_text rest = event->json;
    out->source = 0;
    if (strchr(turn->instance, '"') != NULL)
        return false; /* the type is looked for behind the first quotes around it */
    if (!TAKES(&rest, "{\"event_id\":") || !takes_this_number(&rest, event->event_id)) return false;
    if (TAKES(&rest, ",\"source_event_id\":") && (!takes_number(&rest, &out->source) || out->source == 0)) return false;
    if (!TAKES(&rest, ",\"instance_id\":\"") || !takes(&rest, turn->instance, strlen(turn->instance)) ||
        !TAKES(&rest, "\",\"execution_id\":") || !takes_this_number(&rest, turn->execution_id) ||
        !TAKES(&rest, ",\"timestamp_ms\":") || !takes_number(&rest, &out->written_ms) ||
        !TAKES(&rest, ",\"duroxide_version\":\"") || !takes_version(&rest, &out->version) ||
        !TAKES(&rest, "\",\"type\":\""))
        return false;
    out->rest = rest;
    return rest.size > 0 && is_letter(rest.data[0]);
}
