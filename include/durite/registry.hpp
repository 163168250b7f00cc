/*
 * registry.hpp: activities and handlers as C++ functions and lambdas.  Include durite/durite.hpp.
 */
#ifndef DURITE_REGISTRY_HPP
#define DURITE_REGISTRY_HPP

#include <durite/client.hpp>
#include <durite/orchestration.hpp>
#include <durite/registry.h>

namespace durite {

/* What an activity sees.  See activity.h; the names are the same. */
class act {
  public:
    explicit act(dur_act *handle) : act_(handle) {}
    dur_act *c() const noexcept { return act_; }

    std::string_view instance() const { return detail::view(dur_act_instance_id(act_)); }
    std::uint64_t execution() const { return dur_act_execution_id(act_); }
    std::string_view orchestration() const { return detail::view(dur_act_orchestration_name(act_)); }
    std::string_view orchestration_version() const { return detail::view(dur_act_orchestration_version(act_)); }
    std::string_view name() const { return detail::view(dur_act_name(act_)); }
    std::string_view input() const { return detail::view(dur_act_input(act_)); }
    std::uint64_t id() const { return dur_act_id(act_); }
    std::string_view worker() const { return detail::view(dur_act_worker_id(act_)); }
    std::optional<std::string_view> session() const { return detail::optional_view(dur_act_session(act_)); }
    std::optional<std::string_view> tag() const { return detail::optional_view(dur_act_tag(act_)); }
    std::uint32_t attempt() const { return dur_act_attempt(act_); }
    std::uint32_t delivery() const { return dur_act_delivery(act_); }
    /* The idempotency key for the outside world, and one that is another for each attempt. */
    std::string_view key() const { return detail::view(dur_act_key(act_)); }
    std::string_view attempt_key() const { return detail::view(dur_act_attempt_key(act_)); }

    bool cancelled() const { return dur_act_cancelled(act_); }
    int cancel_fd() const { return dur_act_cancel_fd(act_); }
    bool sleep(milliseconds time) const { return dur_act_sleep(act_, detail::ms(time)); } /* true: cancelled */
    bool beat() const { return dur_act_beat(act_); }
    client_ref client() const { return client_ref(dur_act_client(act_)); } /* lives as long as the activity */
    void trace(dur_log_level level, std::string_view line) const {
        dur_act_trace(act_, level, "%.*s", static_cast<int>(line.size()), line.data());
    }

  private:
    dur_act *act_;
};

/*
 * Which names and versions this program can run:
 *
 *     durite::handlers().activity("Ship", [&vans](durite::act &act, std::string_view slot) { … })
 *                       .orchestration("Order", "2.0.0", order)
 *
 * An activity is anything that can be called with (durite::act &, input), (input), (durite::act &) or (), on
 * several threads at a time; what it captures lives until the runtime has stopped.  An orchestration is a function, or
 * a lambda without captures, of (durite::context &, input) or (durite::context &).  The input is a std::string_view, a
 * std::string or a whole number; an input that is no such number fails the call.
 */
class handlers {
  public:
    template <class F> handlers &activity(std::string_view name, F f) {
        constexpr bool fits = callable<const F &>;
        static_assert(fits || !callable<F &>, "durite: an activity runs on several threads at a time, so its lambda "
                                              "cannot be mutable: guard what changes with a mutex");
        static_assert(fits || callable<F &>, "durite: an activity is called with (durite::act &, std::string_view), "
                                             "(std::string_view), (durite::act &) or ()");
        entry added(DUR_HANDLER_ACTIVITY, name);
        if constexpr (fits) {
            auto code = std::make_shared<const F>(std::move(f));
            added.handler.data = const_cast<void *>(static_cast<const void *>(code.get()));
            added.handler.activity = run_activity<F>;
            added.code = std::move(code);
        }
        entries_.push_back(std::move(added));
        return *this;
    }
    /* Without a version: 1.0.0. */
    template <class F> handlers &orchestration(std::string_view name, F f) {
        return orchestration(name, std::string_view(), f);
    }
    template <class F>
    handlers &orchestration(std::string_view name, std::string_view version, F f, std::size_t stack_bytes = 0) {
        static_assert(
            detail::plain<F>::value,
            "durite: an orchestration is a function or a lambda without captures: it is run again from its "
            "first line, in other processes too, where captured values would be others.  Give it what it needs "
            "as input, or let an activity fetch it");
        entry added(DUR_HANDLER_ORCHESTRATION, name);
        if (!version.empty()) added.version = detail::text(version, "orchestration: the version");
        if constexpr (detail::plain<F>::value) {
            using fn = std::remove_pointer_t<decltype(+f)>;
            static_assert(std::is_invocable_v<fn *, context &, detail::input> || std::is_invocable_v<fn *, context &>,
                          "durite: an orchestration is called with (durite::context &, std::string_view)");
            added.handler.data = reinterpret_cast<void *>(+f);
            added.handler.orchestration = run_orchestration<fn>;
            added.handler.unwind = detail::unwind;
            added.handler.stack_bytes = stack_bytes;
        }
        entries_.push_back(std::move(added));
        return *this;
    }
    handlers &add(const handlers &others) {
        entries_.insert(entries_.end(), others.entries_.begin(), others.entries_.end());
        return *this;
    }

    /* A table for C (dur_test_new, dur_replay_history, a registry); until this object is changed or gone. */
    const dur_handler *c() const {
        table_.clear();
        for (const entry &each : entries_) {
            table_.push_back(each.handler);
            table_.back().name = each.name.c_str();
            table_.back().version = each.version ? each.version->c_str() : nullptr;
        }
        table_.push_back(detail::sized<dur_handler>());
        table_.back().kind = DUR_HANDLER_END;
        return table_.data();
    }

  private:
    struct entry {
        entry(dur_handler_kind kind, std::string_view called) : name(detail::text(called, "the name of a handler")) {
            handler.kind = kind;
        }
        dur_handler handler = detail::sized<dur_handler>();
        std::string name;
        std::optional<std::string> version;
        std::shared_ptr<const void> code;
    };

    template <class F>
    static constexpr bool callable =
        std::is_invocable_v<F, act &, detail::input> || std::is_invocable_v<F, detail::input> ||
        std::is_invocable_v<F, act &> || std::is_invocable_v<F>;

    template <class F> static dur_outcome run_activity(dur_act *handle, const char *given) {
        return detail::guarded(handle, [&] {
            const F &f = *static_cast<const F *>(dur_act_data(handle));
            detail::input text{ detail::view(given) };
            act own(handle);
            if constexpr (std::is_invocable_v<const F &, act &, detail::input>)
                return detail::ended(f, own, text);
            else if constexpr (std::is_invocable_v<const F &, detail::input>)
                return detail::ended(f, text);
            else if constexpr (std::is_invocable_v<const F &, act &>)
                return detail::ended(f, own);
            else
                return detail::ended(f);
        });
    }
    template <class F> static dur_outcome run_orchestration(dur_ctx *ctx, const char *given) {
        return detail::guarded(ctx, [&] {
            F *f = reinterpret_cast<F *>(dur_handler_data(ctx));
            context own(ctx);
            if constexpr (std::is_invocable_v<F *, context &, detail::input>)
                return detail::ended(f, own, detail::input{ detail::view(given) });
            else
                return detail::ended(f, own);
        });
    }

    std::vector<entry> entries_;
    mutable std::vector<dur_handler> table_;
};

} // namespace durite

#endif
