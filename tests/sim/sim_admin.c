/*
 * sim_admin.c: administrators: cancel, terminate, suspend, resume, delete, prune, list, dead letters.
 */
#include "sim_load.h"

#include <stdio.h>
#include <string.h>

/* An id, mostly one that exists, children included. */
static void pick(sim_client *self, char *out, size_t size, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_list *list = NULL;
    sim_pick_id(out, size, rng);
    if (!sim_chance(rng, 40)) return;
    int code = dur_client_list(&list, self->client, DUR_LIST(.limit = 64), &err);
    sim_answered("list", "all", code, &err);
    if (code == DUR_OK && list->count > 0) sim_copy(out, size, list->items[sim_below(rng, list->count)]->instance);
    if (code == DUR_OK) dur_instance_list_free(list);
}

static void do_list(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_list *list = NULL;
    dur_id_list *tree = NULL;
    dur_execution_list *executions = NULL;
    dur_store_counts counts = { .size = sizeof(counts) };
    char last[SIM_ID_MAX] = "", id[SIM_ID_MAX];
    size_t limit = (size_t)sim_between(rng, 1, 5);
    dur_instance_status status = (dur_instance_status)sim_below(rng, 4);
    bool roots = sim_chance(rng, 30);
    const char *prefix = sim_chance(rng, 30) ? "r" : NULL;
    for (size_t page = 0; page < 20; page++) {
        dur_list_options options = *DUR_LIST(.limit = limit, .after = page == 0 ? NULL : last, .status = status,
                                             .roots_only = roots, .id_prefix = prefix);
        int code = dur_client_list(&list, self->client, &options, &err);
        sim_answered("list", last, code, &err);
        if (code != DUR_OK) return;
        for (size_t i = 0; i < list->count; i++) {
            const dur_instance_info *item = list->items[i];
            if (strcmp(item->instance, last) <= 0 || (status != DUR_INSTANCE_NOT_FOUND && item->status != status) ||
                (roots && item->parent != NULL) || (prefix != NULL && item->instance[0] != 'r'))
                sim_fail("a list has %s behind %s: %s, parent %s", item->instance, last,
                         dur_instance_status_name(item->status), item->parent == NULL ? "none" : item->parent);
            sim_copy(last, sizeof(last), list->items[i]->instance);
        }
        bool more = list->next != NULL;
        if (more) sim_copy(last, sizeof(last), list->next);
        dur_instance_list_free(list);
        if (!more) break;
    }
    pick(self, id, sizeof(id), rng);
    int code = dur_client_tree(&tree, self->client, id, &err);
    sim_answered("tree", id, code, &err);
    if (code == DUR_OK) dur_id_list_free(tree);
    code = dur_client_executions(&executions, self->client, id, &err);
    sim_answered("executions", id, code, &err);
    if (code == DUR_OK) dur_execution_list_free(executions);
    char *history = NULL;
    code = dur_client_history(&history, self->client, id, 0, &err);
    sim_answered("history", id, code, &err);
    dur_free(history);
    sim_answered("counts", "all", dur_client_counts(&counts, self->client, &err), &err);
}

/* Throw away what the ledger has taken down. */
static void do_letters(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_dead_letter_list *list = NULL;
    uint64_t ids[8];
    size_t count = 0;
    int code = dur_client_dead_letters(&list, self->client, 0, 8, &err);
    sim_answered("dead_letters", "all", code, &err);
    if (code != DUR_OK) return;
    sim_call *call = sim_chance(rng, 50) ? sim_call_new(SIM_CALL_LETTERS, "") : NULL;
    for (size_t i = 0; call != NULL && i < list->count && i < 8; i++) {
        unsigned number;
        const char *mark = strstr(list->items[i]->message, "\"m");
        size_t used = strlen(call->text);
        while (mark != NULL && sscanf(mark, "\"m%u\"", &number) != 1)
            mark = strstr(mark + 1, "\"m");
        if (mark == NULL || used + 16 > sizeof(call->text)) continue;
        snprintf(call->text + used, sizeof(call->text) - used, "m%u,", number);
        ids[count++] = list->items[i]->id;
    }
    if (call != NULL) {
        sim_call_begin(call);
        code = dur_client_dead_letters_delete(self->client, ids, count, &err);
        sim_call_end(call, code);
        sim_note("dead letters %s: %s", call->text, dur_code_name(code));
        sim_answered("dead_letters_delete", "all", count == 0 ? DUR_OK : code, &err);
    }
    dur_dead_letter_list_free(list);
}

static void do_change(sim_client *self, sim_rng *rng, sim_call_kind kind) {
    dur_error err = DUR_ERROR_INIT;
    dur_deleted deleted = { .size = sizeof(deleted) };
    dur_pruned pruned = { .size = sizeof(pruned) };
    char id[SIM_ID_MAX], reason[24];
    static const char *const names[] = { "start",  "enqueue", "raise",       "cancel", "terminate", "suspend",
                                         "resume", "delete",  "delete_bulk", "prune",  "letters" };
    pick(self, id, sizeof(id), rng);
    bool force = sim_chance(rng, 60);
    sim_call *call = sim_call_new(kind, kind == SIM_CALL_DELETE_BULK ? "" : id);
    if (call == NULL) return;
    snprintf(reason, sizeof(reason), "call-%u", sim_call_number(call));
    sim_call_begin(call);
    int code = DUR_OK;
    switch (kind) {
    case SIM_CALL_CANCEL:
        code = dur_client_cancel(self->client, id, reason, &err);
        break;
    case SIM_CALL_TERMINATE:
        code = dur_client_terminate(self->client, id, reason, &err);
        break;
    case SIM_CALL_SUSPEND:
        code = dur_client_suspend(self->client, id, reason, &err);
        break;
    case SIM_CALL_RESUME:
        code = dur_client_resume(self->client, id, &err);
        break;
    case SIM_CALL_DELETE:
        code = dur_client_delete(&deleted, self->client, id, force, &err);
        break;
    case SIM_CALL_DELETE_BULK:
        code = dur_client_delete_bulk(&deleted, self->client, DUR_BULK(.limit = 3), &err);
        break;
    default:
        if (force)
            code = dur_client_prune(&pruned, self->client, id, DUR_PRUNE(.keep_last = 1), &err);
        else
            code = dur_client_prune_bulk(&pruned, self->client, DUR_BULK(.limit = 5), DUR_PRUNE(.keep_last = 2), &err);
    }
    sim_call_end(call, code);
    sim_note("%s %s %s: %s", names[kind], id, reason, dur_code_name(code));
    sim_answered(names[kind], id, code, &err);
}

void sim_admin_do(sim_client *self, sim_rng *rng) {
    uint64_t choice = sim_below(rng, 100);
    if (choice < 20)
        do_change(self, rng, SIM_CALL_CANCEL);
    else if (choice < 30)
        do_change(self, rng, SIM_CALL_TERMINATE);
    else if (choice < 40)
        do_change(self, rng, SIM_CALL_SUSPEND);
    else if (choice < 50)
        do_change(self, rng, SIM_CALL_RESUME);
    else if (choice < 68)
        do_change(self, rng, SIM_CALL_DELETE);
    else if (choice < 74)
        do_change(self, rng, SIM_CALL_DELETE_BULK);
    else if (choice < 82)
        do_change(self, rng, SIM_CALL_PRUNE);
    else if (choice < 92)
        do_list(self, rng);
    else
        do_letters(self, rng);
}
