/*
 * finish.c: the end of an execution (R6): drops of what is open in order of creation, then the terminal event, last.
 *
 * Activities and children that were detached go on; a timer or a wait has no meaning after the end and goes in any
 * case.
 */
#include "replay/engine.h"

static const char *activity_reason(dur__end end) {
    switch (end) {
    case DUR__END_COMPLETED:
        return "orchestration_terminal_completed";
    case DUR__END_CONTINUED:
        return "orchestration_terminal_continued_as_new";
    default:
        return "orchestration_terminal_failed";
    }
}

/* Nobody is told any more. */
static void leaf_forget(dur__leaf *leaf) {
    leaf->future = NULL;
    leaf->retry = NULL;
    for (dur_future *holder = leaf->holders; holder != NULL; holder = holder->fellow)
        holder->holds = NULL;
    leaf->holders = NULL;
}

static void drop_open(dur__exec *exec, dur__end end) {
    for (uint64_t id = 0; exec->broken == DUR_OK;) {
        dur__leaf *leaf = dur__open_after(exec, id);
        if (leaf == NULL) return;
        id = leaf->id;
        leaf_forget(leaf);
        if (leaf->detached && (leaf->kind == DUR__LEAF_ACTIVITY || leaf->kind == DUR__LEAF_CHILD)) continue;
        const char *reason = leaf->kind == DUR__LEAF_ACTIVITY ? activity_reason(end) : "orchestration_terminal";
        dur_event drop;
        if (dur__leaf_drop_event(leaf, reason, &drop) && !dur__terminal_command(exec, &drop, leaf->site)) return;
        dur__leaf_dropped(exec, leaf);
    }
}

bool dur__terminal_command(dur__exec *exec, dur_event *event, const char *site) {
    if (!exec->original) return dur__command(exec, event, site);
    if (!exec->replaying) dur__emit(exec, event);
    return exec->broken == DUR_OK;
}

/* The handler is gone; what it left is freed with the execution. */
static void finish_clean(dur__exec *exec) {
    exec->finished = true;
    exec->returned = false;
    dur__branches_free(exec);
    dur__retries_free(exec);
}

static void finish(dur__exec *exec, dur__end end, const char *output, const dur_failure *failure, const char *version) {
    dur_event terminal = { .kind = DUR_EVENT_ORCHESTRATION_COMPLETED };
    if (end == DUR__END_CONTINUED) {
        terminal.kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW;
        terminal.input = output;
    } else if (end == DUR__END_FAILED) {
        terminal.kind = DUR_EVENT_ORCHESTRATION_FAILED;
        terminal.details = failure;
    } else {
        terminal.output = output;
    }
    drop_open(exec, end);
    if (exec->broken != DUR_OK || !dur__terminal_command(exec, &terminal, exec->where)) return;
    exec->end = end;
    exec->output = output;
    exec->failure = failure;
    if (!exec->replaying) dur__effect_ended(exec, version);
    finish_clean(exec);
}

void dur__finish_failed(dur__exec *exec, const dur_failure *failure) {
    if (exec->original && exec->replaying) {
        exec->forced = true;
        return;
    }
    failure = dur__failure_copy(exec->arena, failure);
    const char *text = dur_failure_display(exec->arena, failure);
    finish(exec, DUR__END_FAILED, text, failure, NULL);
}

static void finish_application(dur__exec *exec, dur_failure_kind kind, const char *message) {
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION, .kind = kind, .message = message };
    dur__finish_failed(exec, &failure);
}

const dur_failure *dur__cancelled_failure(dur__exec *exec, const char *said) {
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION,
                            .kind = DUR_FAILURE_CANCELLED,
                            .reason = exec->cancel_reason,
                            .said = said,
                            .message = "orchestration cancelled" };
    return dur__failure_copy(exec->arena, &failure);
}

/* What a handler has to tell after it was cancelled ("refunded 2 of 3"); NULL: nothing but that. */
static const char *last_words(dur__exec *exec, dur_outcome outcome, const char *text) {
    if (outcome.kind_ != DUR__OUTCOME_COMPLETE && outcome.kind_ != DUR__OUTCOME_FAIL) return NULL;
    const char *told = dur_failure_display(exec->arena, dur__cancelled_failure(exec, NULL));
    return text[0] == '\0' || strcmp(text, told) == 0 ? NULL : text;
}

void dur__finish_returned(dur__exec *exec) {
    if (exec->original)
        exec->returned = true; /* its commands are yet to be met in history, or recorded */
    else
        dur__finish_returned_now(exec);
}

void dur__finish_returned_now(dur__exec *exec) {
    dur_outcome outcome = exec->root->outcome;
    const char *text = dur_arena_strdup(exec->arena, outcome.text_ != NULL ? outcome.text_ : "");
    const char *version = dur_arena_strdup(exec->arena, outcome.version_);
    if (exec->cancel_reason != NULL) { /* whatever it returned (R5) */
        dur__finish_failed(exec, dur__cancelled_failure(exec, last_words(exec, outcome, text)));
        return;
    }
    switch (outcome.kind_) {
    case DUR__OUTCOME_COMPLETE:
        finish(exec, DUR__END_COMPLETED, text, NULL, NULL);
        break;
    case DUR__OUTCOME_CONTINUE:
        finish(exec, DUR__END_CONTINUED, text, NULL, version);
        break;
    case DUR__OUTCOME_FAIL:
        finish_application(exec, DUR_FAILURE_ORCHESTRATION_FAILED, text);
        break;
    default:
        finish_application(exec, DUR_FAILURE_PANICKED, "handler returned no outcome");
        break;
    }
}

bool dur__finish_forced(dur__exec *exec, const dur_event *terminal) {
    if (terminal->kind == DUR_EVENT_ORCHESTRATION_FAILED && terminal->details != NULL) {
        exec->end = DUR__END_FAILED;
        exec->failure = dur__failure_copy(exec->arena, terminal->details);
        exec->output = dur_failure_display(exec->arena, exec->failure);
    } else if (terminal->kind == DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW) {
        exec->end = DUR__END_CONTINUED;
        exec->output = dur_arena_strdup(exec->arena, terminal->input);
    } else {
        exec->end = DUR__END_COMPLETED;
        exec->output = dur_arena_strdup(exec->arena, terminal->output);
    }
    finish_clean(exec);
    return true;
}
