/*
 * sim_acts.c: activities, and the tables of handlers.
 *
 * The input is "PATH#NUMBER:MORE"; the answer is "PATH=ECHO", so that nobody can take it for another's.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    char *path;
    unsigned long number, more;
    sim_work *work;
} job;

static job begin(dur_act *act, const char *input) {
    job self = { .path = dur_act_format(act, "%s", input) };
    char *mark = strchr(self.path, '#');
    if (mark == NULL)
        sim_fail("activity %s of %s: input is \"%s\"", dur_act_name(act), dur_act_instance_id(act), input);
    *mark = '\0';
    self.number = strtoul(mark + 1, &mark, 10);
    self.more = *mark == ':' ? strtoul(mark + 1, NULL, 10) : 0;
    self.work =
        sim_work_begin(dur_act_name(act), self.path, dur_act_attempt(act), dur_act_delivery(act), dur_act_session(act));
    return self;
}

static dur_outcome end(dur_act *act, const job *self) {
    sim_work_end(self->work);
    return dur_act_completef(act, "%s=%llu", self->path, (unsigned long long)sim_echo(self->number));
}

dur_outcome sim_act_echo(dur_act *act, const char *input) {
    job self = begin(act, input);
    if (self.more == SIM_DROPPED) sim_fail("activity %s runs, which was given up before it was sent", self.path);
    if (self.number % 7 == 0 && dur_act_beat(act)) dur_act_trace(act, DUR_LOG_DEBUG, "%s is cancelled", self.path);
    if (strcmp(dur_act_name(act), "Gpu") == 0 && (dur_act_tag(act) == NULL || strcmp(dur_act_tag(act), "gpu") != 0))
        sim_fail("activity %s has the tag %s", self.path, dur_act_tag(act) == NULL ? "none" : dur_act_tag(act));
    return end(act, &self);
}

/* Fails as often as `more` says; from 100 on for good. */
dur_outcome sim_act_flaky(dur_act *act, const char *input) {
    job self = begin(act, input);
    uint32_t attempt = dur_act_attempt(act);
    if (self.more < 100 && attempt > self.more) return end(act, &self);
    sim_work_end(self.work);
    if (self.more >= 100) return dur_act_fail_final(act, dur_act_format(act, "planned %s", self.path));
    return dur_act_failf(act, "planned %s attempt %u", self.path, attempt);
}

dur_outcome sim_act_sess(dur_act *act, const char *input) {
    job self = begin(act, input);
    if (dur_act_session(act) == NULL) sim_fail("activity %s has no session", self.path);
    if (self.number % 4 == 0 && sim_run_of()->store != SIM_MEMORY) /* the node goes on meanwhile */
        dur_act_sleep(act, self.number);
    return end(act, &self);
}

/* Sends a message to its own orchestration.  A second run, or one whose answer got lost, sends another. */
dur_outcome sim_act_tell(dur_act *act, const char *input) {
    job self = begin(act, input);
    sim_call *call = sim_call_new(SIM_CALL_SEND, dur_act_instance_id(act));
    if (call != NULL) {
        dur_error err = DUR_ERROR_INIT;
        char data[24];
        snprintf(call->name, sizeof(call->name), "q%lu", self.number);
        snprintf(data, sizeof(data), "m%u", sim_call_number(call));
        sim_call_begin(call);
        int code = dur_client_send(dur_act_client(act), &err, call->instance, call->name, data);
        sim_call_end(call, code);
        sim_note("%s sends %s: %s", self.path, data, dur_code_name(code));
        sim_answered("enqueue", call->instance, code, &err);
    }
    return end(act, &self);
}

/* The host runs it, when it likes. */
dur_outcome sim_act_taken(dur_act *act, const char *input) {
    job self = begin(act, input);
    return end(act, &self);
}

const dur_handler *sim_handlers(unsigned mask, bool taken) {
    static const struct {
        unsigned bit;
        dur_handler handler;
    } all[] = {
        { SIM_H_FLOW1, DUR_ORCHESTRATION("Flow", "1.0.0", sim_flow) },
        { SIM_H_FLOW2, DUR_ORCHESTRATION("Flow", "2.0.0", sim_flow) },
        { SIM_H_LEAF, DUR_ORCHESTRATION("Leaf", NULL, sim_flow) },
        { SIM_H_ECHO, DUR_ACTIVITY("Echo", sim_act_echo) },
        { SIM_H_FLAKY, DUR_ACTIVITY("Flaky", sim_act_flaky) },
        { SIM_H_SESS, DUR_ACTIVITY("Sess", sim_act_sess) },
        { SIM_H_TELL, DUR_ACTIVITY("Tell", sim_act_tell) },
        { SIM_H_TAKEN, DUR_ACTIVITY_TAKEN("Taken") },
        { SIM_H_GPU, DUR_ACTIVITY("Gpu", sim_act_echo) },
    };
    static dur_handler table[sizeof(all) / sizeof(all[0]) + 1];
    size_t count = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if ((mask & all[i].bit) == 0) continue;
        table[count] = all[i].handler;
        if (all[i].handler.taken && !taken) {
            table[count].taken = false;
            table[count].activity = sim_act_taken;
        }
        count++;
    }
    table[count] = (dur_handler)DUR_HANDLERS_END;
    return table;
}
