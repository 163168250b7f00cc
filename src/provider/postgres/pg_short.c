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
 * and without the number where there is no source.  A step is stored from a comma on, where the columns say what comes
 * before it: in its instance's row without the names that stand there; beside the event that has scheduled it without
 * what that says, which leaves the names, or the comma alone, where the instance's row has them.
 * Everything is compared byte by byte with what the statements that read it put together (DUR__PG_EVENT_IN_FULL,
 * DUR__PG_STEP_IN_FULL, DUR__PG_ROW_STEP_IN_FULL), so a text that looks otherwise in any way is stored as it is.
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
        !TAKES(&rest, "\"," DUR__PG_TYPE))
        return false;
    out->rest = rest;
    return rest.size > 0 && is_letter(rest.data[0]);
}

/* Behind the type of the event that has scheduled it. */
static bool scheduled_by(const dur_turn_commit *turn, const dur_event_row *event, dur_text *said) {
    static const char type[] = DUR__PG_TYPE DUR__PG_SCHEDULED;
    dur__pg_event_text text;
    if (dur__pg_event_short(turn, event, &text)) {
        *said = text.rest;
        return text.source == 0 && TAKES(said, DUR__PG_SCHEDULED);
    }
    const char *at = memmem(event->json.data, event->json.size, type, sizeof(type) - 1);
    if (at == NULL) return false;
    at += sizeof(type) - 1;
    *said = (dur_text){ at, (size_t)(event->json.data + event->json.size - at) };
    return true;
}

/* As far as the keys of its instance say it. */
static bool takes_step(dur_text *text, const dur_turn_commit *turn, const dur_message *item) {
    return TAKES(text, "{\"ActivityExecute\":{\"instance\":\"") &&
           takes(text, turn->instance, strlen(turn->instance)) && TAKES(text, "\",\"execution_id\":") &&
           takes_this_number(text, item->execution_id) && TAKES(text, ",\"id\":") &&
           takes_this_number(text, item->activity_id) && text->size > 0 && text->data[0] == ',';
}

/* The end that the names of its instance say; 0: it is another one. */
static size_t end_size(dur_text text, const char *end) {
    size_t size = end != NULL ? strlen(end) : 0;
    return size <= text.size && memcmp(text.data + text.size - size, end != NULL ? end : "", size) == 0 ? size : 0;
}

dur_text dur__pg_step_short(const dur_turn_commit *turn, const dur_message *item, const char *end) {
    uint64_t first = turn->events[0].event_id;
    if (item->activity_id < first || item->activity_id - first >= turn->event_count) return item->json;
    size_t at = (size_t)(item->activity_id - first);
    dur_text said, rest = item->json;
    if (!dur__pg_in_first_row(turn, at) || !scheduled_by(turn, &turn->events[at], &said) || said.size < 2 ||
        said.data[said.size - 1] != '}' || !takes_step(&rest, turn, item) || !TAKES(&rest, ",") ||
        !takes(&rest, said.data, said.size - 1) || rest.size == 0 || rest.data[0] != ',')
        return item->json;
    return end_size(rest, end) == rest.size ? (dur_text){ rest.data, 1 } : rest;
}

dur_text dur__pg_step_in_row(const dur_turn_commit *turn, const dur_message *item, const char *end) {
    dur_text rest = item->json;
    size_t size = takes_step(&rest, turn, item) ? end_size(rest, end) : 0;
    return size > 0 && size < rest.size ? (dur_text){ rest.data, rest.size - size } : item->json;
}
