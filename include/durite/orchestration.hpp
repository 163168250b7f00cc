/*
 * orchestration.hpp: what the author of an orchestration uses in C++.  Include durite/durite.hpp, which says more.
 */
#ifndef DURITE_ORCHESTRATION_HPP
#define DURITE_ORCHESTRATION_HPP

#include <durite/activity.h>
#include <durite/error.hpp>
#include <durite/orchestration.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace durite {

/* Where a call stands, "order.cpp:12", for error reports; given by the compiler. */
class site {
  public:
    static site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return site(file, line); }
    /* Lives for ever: the same few are asked for again and again. */
    const char *c() const {
        static std::mutex *mutex = new std::mutex;
        static auto *known = new std::map<std::pair<const char *, int>, std::string>;
        std::lock_guard<std::mutex> lock(*mutex);
        std::string &text = (*known)[{ file_, line_ }];
        if (text.empty()) text = std::string(file_) + ":" + std::to_string(line_);
        return text.c_str();
    }

  private:
    site(const char *file, int line) : file_(file), line_(line) {}
    const char *file_;
    int line_;
};

/* ---- what is asked for: values, with options by chained setters -------------------------------------------------- */

/* When and how often a failed activity is tried again: retry().attempts(5).delay(200ms).  See dur_retry. */
class retry {
  public:
    using predicate = bool(std::string_view reason, std::uint32_t attempt);

    retry &attempts(std::uint32_t most) { return set(&dur_retry::attempts_max, most); }
    retry &backoff(dur_backoff how) { return set(&dur_retry::backoff, how); }
    retry &delay(milliseconds first) { return set(&dur_retry::delay_ms, detail::ms(first)); }
    retry &factor(double by) { return set(&dur_retry::delay_factor, by); }
    retry &delay_max(milliseconds most) { return set(&dur_retry::delay_ms_max, detail::ms(most)); }
    retry &jitter(double share) { return set(&dur_retry::jitter, share); }
    retry &attempt_timeout(milliseconds most) { return set(&dur_retry::attempt_timeout_ms, detail::ms(most)); }
    retry &total_timeout(milliseconds most) { return set(&dur_retry::total_timeout_ms, detail::ms(most)); }
    retry &no_retry_on_timeout(bool yes = true) { return set(&dur_retry::no_retry_on_timeout, yes); }
    /* A pure function, or a lambda without captures; asked again on replay.  One that throws says no. */
    retry &when(predicate *worth) {
        args_.predicate = ask;
        args_.predicate_data = reinterpret_cast<void *>(worth);
        return *this;
    }
    const dur_retry *c() const { return &args_; }

  private:
    template <class T> retry &set(T dur_retry::*field, T value) {
        args_.*field = value;
        return *this;
    }
    static bool ask(const char *reason, std::uint32_t attempt, void *data) noexcept {
        try {
            return reinterpret_cast<predicate *>(data)(detail::view(reason), attempt);
        } catch (...) {
            return false;
        }
    }
    dur_retry args_ = detail::sized<dur_retry>();
};

/* An activity to be run: ctx.schedule or ctx.await does it. */
class activity {
  public:
    activity(std::string_view name, std::string_view input = {}, site where = site::here())
        : name_(detail::text(name, "activity: the name")), input_(detail::text(input, "activity: the input")),
          where_(where) {}
    activity &tag(std::string_view only) { return tag_ = detail::text(only, "activity: the tag"), *this; }
    activity &session(std::string_view id) { return session_ = detail::text(id, "activity: the session"), *this; }
    activity &retry(const durite::retry &policy) { return retry_ = policy, *this; }
    activity &timeout(milliseconds most) { return timeout_ms_ = detail::ms(most), *this; }

    /* Points into this object. */
    dur_activity_args c() const {
        dur_activity_args args = detail::sized<dur_activity_args>();
        args.name = name_.c_str();
        args.input = input_.c_str();
        args.tag = tag_ ? tag_->c_str() : nullptr;
        args.session = session_ ? session_->c_str() : nullptr;
        args.retry = retry_ ? retry_->c() : nullptr;
        args.timeout_ms = timeout_ms_;
        args.site = where_.c();
        return args;
    }

  private:
    std::string name_, input_;
    std::optional<std::string> tag_, session_;
    std::optional<durite::retry> retry_;
    std::uint64_t timeout_ms_ = 0;
    site where_;
};

/* Another orchestration: ctx.schedule or ctx.await makes a child of it, ctx.start one that does not answer. */
class child {
  public:
    child(std::string_view name, std::string_view input = {}, site where = site::here())
        : name_(detail::text(name, "child: the name")), input_(detail::text(input, "child: the input")), where_(where) {
    }
    child &version(std::string_view exact) { return version_ = detail::text(exact, "child: the version"), *this; }
    child &instance(std::string_view id) { return instance_ = detail::text(id, "child: the instance"), *this; }

    dur_orchestration_args c() const {
        dur_orchestration_args args = detail::sized<dur_orchestration_args>();
        args.name = name_.c_str();
        args.input = input_.c_str();
        args.version = version_ ? version_->c_str() : nullptr;
        args.instance = instance_ ? instance_->c_str() : nullptr;
        args.site = where_.c();
        return args;
    }

  private:
    std::string name_, input_;
    std::optional<std::string> version_, instance_;
    site where_;
};

/* How a handler ends, where a text is not enough: return durite::continue_as_new(next).version("2.0.0"). */
class outcome {
  public:
    outcome(std::string_view output) : text_(output) {}
    outcome(const std::string &output) : text_(output) {}
    outcome(const char *output) : text_(detail::view(output)) {}

    outcome &version(std::string_view exact) { return version_ = detail::text(exact, "version"), *this; }

    enum class kind { complete, fail, fail_final, continue_as_new };
    outcome(kind how, std::string_view text, dur_code code = DUR_EFAILED) : kind_(how), code_(code), text_(text) {}

    dur_outcome c(dur_ctx *ctx) const {
        std::string own = detail::text(text_, "the result");
        if (kind_ == kind::complete) return dur_complete(ctx, own.c_str());
        if (kind_ != kind::continue_as_new) return dur_fail_as(ctx, code_, own.c_str());
        dur_continue_args args = detail::sized<dur_continue_args>();
        args.input = own.c_str();
        args.version = version_ ? version_->c_str() : nullptr;
        return dur_continue_as_new_ex(ctx, &args);
    }
    dur_outcome c(dur_act *act) const {
        std::string own = detail::text(text_, "the result");
        if (kind_ == kind::fail_final) return dur_act_fail_final(act, own.c_str());
        return kind_ == kind::fail ? dur_act_fail(act, own.c_str()) : dur_act_complete(act, own.c_str());
    }

  private:
    kind kind_ = kind::complete;
    dur_code code_ = DUR_EFAILED;
    std::string text_;
    std::optional<std::string> version_;
};

/* Start over as a new execution with a fresh history. */
inline outcome continue_as_new(std::string_view input = {}) {
    return outcome(outcome::kind::continue_as_new, input);
}

/* ---- futures ----------------------------------------------------------------------------------------------------- */

/* Something that was asked for and will settle.  A handle: copies mean the same one. */
class future {
  public:
    future() = default;
    explicit future(dur_future *handle) : handle_(handle) {}

    /* Wait for the value; durite::error (code and reason) if it failed. */
    std::string_view get() const { return get<std::string_view>(); }
    template <class T> T get() const {
        expected<std::string_view> got = try_get();
        return refused(got) ? T() : detail::convert<T>(got.value());
    }
    expected<std::string_view> try_get() const {
        return wait([this](const char **out) { return dur_try(handle_, out); });
    }
    /* Within a time; then DUR_ETIMEOUT, and the future is dropped. */
    std::string_view get_for(milliseconds time, site where = site::here()) const {
        expected<std::string_view> got = try_get_for(time, where);
        return refused(got) ? std::string_view() : got.value();
    }
    expected<std::string_view> try_get_for(milliseconds time, site where = site::here()) const {
        return wait([&](const char **out) { return dur_try_for_ex(handle_, detail::ms(time), out, where.c()); },
                    "timed out");
    }

    bool settled() const noexcept { return dur_is_settled(handle_); }
    dur_code code() const noexcept { return static_cast<dur_code>(dur_code_of(handle_)); } /* DUR_ERUNNING: not settled yet */
    std::string_view reason() const noexcept { return detail::view(dur_reason(handle_)); }
    bool none() const noexcept { return dur_is_none(handle_); }   /* a remote key that there is not */
    bool final() const noexcept { return dur_is_final(handle_); } /* its failure was a final_failure */

    void drop() const noexcept {
        detail::quietly([this] { dur_drop(handle_); });
    }
    void detach() const {
        detail::call(done(), [this] { return dur_detach(handle_), done(); });
    }
    dur_future *c() const noexcept { return handle_; }
    friend bool operator==(const future &a, const future &b) noexcept { return a.handle_ == b.handle_; }
    friend bool operator!=(const future &a, const future &b) noexcept { return a.handle_ != b.handle_; }

  private:
    template <class F> expected<std::string_view> wait(F &&f, const char *without_reason = "") const {
        const char *out = nullptr;
        dur_code code = detail::call(DUR_ECANCELLED, [&] { return static_cast<dur_code>(f(&out)); });
        if (code == DUR_OK) return detail::view(out);
        if (code == DUR_EINVAL && !settled()) detail::nobody("get");
        const char *told = settled() && dur_code_of(handle_) == code ? dur_reason(handle_) : without_reason;
        return expected<std::string_view>(code, told);
    }
    /* The handler is being dropped, and nothing may be thrown. */
    bool refused(const expected<std::string_view> &got) const { return got.code() == DUR_ECANCELLED && !settled(); }
    dur_future *handle_ = nullptr;
};

/* Waiting for several.  select: the first that settles, and the others are dropped; any: the same, and nothing is
   dropped; join: until all have settled, failed or not. */
namespace detail {

inline std::vector<dur_future *> handles(const std::vector<future> &futures) {
    std::vector<dur_future *> all;
    all.reserve(futures.size());
    for (const future &one : futures)
        all.push_back(one.c());
    return all;
}

} // namespace detail

inline future select(const std::vector<future> &futures) {
    std::vector<dur_future *> all = detail::handles(futures);
    return future(detail::call<dur_future *>(nullptr, [&] { return dur_select_n(all.data(), all.size()); }));
}
inline future any(const std::vector<future> &futures) {
    std::vector<dur_future *> all = detail::handles(futures);
    return future(detail::call<dur_future *>(nullptr, [&] { return dur_any_n(all.data(), all.size()); }));
}
inline void join(const std::vector<future> &futures) {
    std::vector<dur_future *> all = detail::handles(futures);
    detail::call(done(), [&] { return dur_join_n(all.data(), all.size()), done(); });
}
template <class... F> future select(const future &first, const F &...others) {
    return select(std::vector<future>{ first, future(others)... });
}
template <class... F> future any(const future &first, const F &...others) {
    return any(std::vector<future>{ first, future(others)... });
}
template <class... F> void join(const future &first, const F &...others) {
    join(std::vector<future>{ first, future(others)... });
}

/* A concurrent branch of a handler, made by ctx.spawn.  Its lambda may capture, by reference too: when this object
   goes, a branch that has not ended is dropped first, with its own objects. */
class branch {
  public:
    branch(branch &&other) noexcept : of_(std::exchange(other.of_, future())), code_(std::move(other.code_)) {}
    branch &operator=(branch &&other) noexcept {
        of_.drop();
        of_ = std::exchange(other.of_, future());
        code_ = std::move(other.code_);
        return *this;
    }
    ~branch() { of_.drop(); }

    operator future() const noexcept { return of_; }
    std::string_view get() const { return of_.get(); }
    template <class T> T get() const { return of_.get<T>(); }
    expected<std::string_view> try_get() const { return of_.try_get(); }
    bool settled() const noexcept { return of_.settled(); }

  private:
    friend class context;
    branch(future of, std::shared_ptr<void> code) : of_(of), code_(std::move(code)) {}
    future of_;
    std::shared_ptr<void> code_;
};

/* ---- running users' functions ------------------------------------------------------------------------------------ */

namespace detail {

/* What a function returns, as an outcome. */
template <class F, class... A> outcome ended(F &&f, A &&...args) {
    using returned = std::invoke_result_t<F, A...>;
    if constexpr (std::is_void_v<returned>) {
        std::forward<F>(f)(std::forward<A>(args)...);
        return outcome("");
    } else if constexpr (is_number<std::decay_t<returned>>) {
        return outcome(std::to_string(std::forward<F>(f)(std::forward<A>(args)...)));
    } else {
        static_assert(
            std::is_convertible_v<returned, outcome>,
            "durite: a handler returns nothing, a text (std::string, std::string_view, const char *), a whole "
            "number or a durite::outcome");
        return std::forward<F>(f)(std::forward<A>(args)...);
    }
}

/* Nothing comes out of here: an exception is a failure. */
template <class H, class F> dur_outcome guarded(H *handle, F &&f) noexcept {
    try {
        outcome how("");
        try {
            how = f();
        } catch (const final_failure &e) {
            how = outcome(outcome::kind::fail_final, reason(e.what()));
        } catch (const error &e) {
            bool waited = e.code() == DUR_ECANCELLED || e.code() == DUR_ETIMEOUT || e.code() == DUR_EPOISON;
            how = outcome(outcome::kind::fail, reason(e.what()), waited ? e.code() : DUR_EFAILED);
        } catch (const std::exception &e) {
            how = outcome(outcome::kind::fail, reason(e.what()));
        } catch (const dropped &) {
            throw;
        } catch (...) {
            how = outcome(outcome::kind::fail, "an exception that is no std::exception left the handler");
        }
        try {
            return how.c(handle);
        } catch (const error &e) {
            return outcome(outcome::kind::fail, e.what()).c(handle);
        }
    } catch (...) { /* dropped; or no memory, which shows as a handler without an outcome */
        return dur_outcome();
    }
}

template <class F, class = void> struct plain : std::false_type {};
template <class F> struct plain<F, std::void_t<decltype(+std::declval<F>())>> {
    static constexpr bool value = std::is_function_v<std::remove_pointer_t<decltype(+std::declval<F>())>>;
};

} // namespace detail

/* ---- what an orchestration sees ---------------------------------------------------------------------------------- */

/* One execution of a handler.  See orchestration.h; the names are the same. */
class context {
  public:
    explicit context(dur_ctx *ctx) : ctx_(ctx) {}
    dur_ctx *c() const noexcept { return ctx_; }

    /* ---- schedule: at once ---- */
    future schedule(const durite::activity &what) const {
        dur_activity_args args = what.c();
        return made([&] { return dur_activity_ex(ctx_, &args); });
    }
    future schedule(const durite::child &what) const {
        dur_orchestration_args args = what.c();
        return made([&] { return dur_orchestration_ex(ctx_, &args); });
    }
    future activity(std::string_view name, std::string_view input = {}, site where = site::here()) const {
        return schedule(durite::activity(name, input, where));
    }
    future child(std::string_view name, std::string_view input = {}, site where = site::here()) const {
        return schedule(durite::child(name, input, where));
    }
    /* One that does not answer; its instance id. */
    std::string_view start(const durite::child &what) const {
        dur_orchestration_args args = what.c();
        return text([&] { return dur_start_ex(ctx_, &args); });
    }
    future timer(milliseconds delay, site where = site::here()) const {
        return made([&] { return dur_timer_ex(ctx_, detail::ms(delay), where.c()); });
    }
    /* The next message of that name, sent by client.send; kept until it is asked for. */
    future message(std::string_view name, site where = site::here()) const {
        std::string own = detail::text(name, "message: the name");
        return made([&] { return dur_message_ex(ctx_, own.c_str(), where.c()); });
    }
    /* Counts only while somebody waits: client.pulse. */
    future pulse(std::string_view name, site where = site::here()) const {
        std::string own = detail::text(name, "pulse: the name");
        return made([&] { return dur_pulse_ex(ctx_, own.c_str(), where.c()); });
    }
    future kv_remote(std::string_view instance, std::string_view key, site where = site::here()) const {
        std::string own = detail::text(instance, "kv_remote: the instance"),
                    own_key = detail::text(key, "kv_remote: the key");
        return made([&] { return dur_kv_remote_ex(ctx_, own.c_str(), own_key.c_str(), where.c()); });
    }
    /* A concurrent branch: a function or lambda of (durite::context &), which may capture. */
    template <class F> [[nodiscard]] branch spawn(F f, site where = site::here()) const {
        static_assert(std::is_invocable_v<F &, context &>, "durite: a branch is called with (durite::context &)");
        auto code = std::make_shared<F>(std::move(f));
        F *raw = code.get();
        return branch(made([&] { return dur_spawn_ex(ctx_, run_branch<F>, raw, where.c()); }), std::move(code));
    }
    future all_of(const std::vector<future> &futures) const {
        std::vector<dur_future *> all = detail::handles(futures);
        return made([&] { return dur_all_of(ctx_, all.data(), all.size()); });
    }
    future first_of(const std::vector<future> &futures) const {
        std::vector<dur_future *> all = detail::handles(futures);
        return made([&] { return dur_first_of(ctx_, all.data(), all.size()); });
    }

    /* ---- wait ---- */
    std::string_view await(const future &what) const { return what.get(); }
    std::string_view await(const durite::activity &what) const { return schedule(what).get(); }
    std::string_view await(const durite::child &what) const { return schedule(what).get(); }
    void sleep(milliseconds time, site where = site::here()) const { timer(time, where).get(); }
    /* A message that is there already. */
    std::optional<std::string_view> try_message(std::string_view name, site where = site::here()) const {
        std::string own = detail::text(name, "try_message: the name");
        const char *out = nullptr;
        dur_code code = detail::call(DUR_ENOTFOUND, [&] {
            return static_cast<dur_code>(dur_try_message_ex(ctx_, own.c_str(), &out, where.c()));
        });
        if (code != DUR_OK && code != DUR_ENOTFOUND) throw error(code, "try_message: " + std::string(name));
        return code == DUR_OK ? detail::optional_view(out) : std::nullopt;
    }

    /* ---- the deterministic world ---- */
    std::chrono::system_clock::time_point now(site where = site::here()) const {
        std::uint64_t at = number([&] { return dur_now_ms_ex(ctx_, where.c()); });
        return std::chrono::system_clock::time_point(milliseconds(static_cast<milliseconds::rep>(at)));
    }
    std::string_view guid(site where = site::here()) const {
        return text([&] { return dur_guid_ex(ctx_, where.c()); });
    }
    std::uint64_t random(site where = site::here()) const {
        return number([&] { return dur_random_ex(ctx_, where.c()); });
    }
    bool patched(std::string_view id, site where = site::here()) const {
        std::string own = detail::text(id, "patched: the id");
        return detail::call(false, [&] { return dur_patched_ex(ctx_, own.c_str(), where.c()); });
    }
    void trace(dur_log_level level, std::string_view line) const {
        std::string own = detail::text(line, "trace: the line");
        run([&] { dur_trace(ctx_, level, "%s", own.c_str()); });
    }
    void status(std::string_view shown) const {
        std::string own = detail::text(shown, "status: the text");
        run([&] { dur_status_set(ctx_, own.c_str()); });
    }
    void status_clear() const {
        run([&] { dur_status_clear(ctx_); });
    }
    std::optional<std::string_view> status() const {
        return optional([&] { return dur_status_get(ctx_); });
    }
    void kv_set(std::string_view key, std::string_view value) const {
        std::string own = detail::text(key, "kv_set: the key"), own_value = detail::text(value, "kv_set: the value");
        run([&] { dur_kv_set(ctx_, own.c_str(), own_value.c_str()); });
    }
    std::optional<std::string_view> kv_get(std::string_view key) const {
        std::string own = detail::text(key, "kv_get: the key");
        return optional([&] { return dur_kv_get(ctx_, own.c_str()); });
    }
    void kv_clear(std::string_view key) const {
        std::string own = detail::text(key, "kv_clear: the key");
        run([&] { dur_kv_clear(ctx_, own.c_str()); });
    }
    void kv_clear_all() const {
        run([&] { dur_kv_clear_all(ctx_); });
    }
    /* In ascending order. */
    std::vector<std::string> kv_keys() const {
        std::vector<std::string> keys;
        for (std::size_t i = 0, count = dur_kv_count(ctx_); i < count; i++)
            keys.emplace_back(detail::view(dur_kv_key(ctx_, i)));
        return keys;
    }

    /* ---- about itself ---- */
    std::string_view instance() const noexcept { return detail::view(dur_instance_id(ctx_)); }
    std::uint64_t execution() const noexcept { return dur_execution_id(ctx_); }
    std::string_view name() const noexcept { return detail::view(dur_orchestration_name(ctx_)); }
    std::string_view version() const noexcept { return detail::view(dur_orchestration_version(ctx_)); }
    std::optional<std::string_view> parent() const { return detail::optional_view(dur_parent_instance(ctx_)); }
    bool replaying() const noexcept { return dur_is_replaying(ctx_); }
    std::uint64_t history_events() const noexcept { return dur_history_events(ctx_); }
    std::optional<std::string_view> cancel_reason() const { return detail::optional_view(dur_cancel_reason(ctx_)); }

  private:
    template <class F> static dur_outcome run_branch(dur_ctx *ctx, void *code) {
        return detail::guarded(ctx, [&] {
            context own(ctx);
            return detail::ended(*static_cast<F *>(code), own);
        });
    }
    template <class F> static future made(F &&f) { return future(detail::call<dur_future *>(nullptr, f)); }
    template <class F> static std::string_view text(F &&f) {
        return detail::view(detail::call<const char *>(nullptr, f));
    }
    template <class F> static std::optional<std::string_view> optional(F &&f) {
        return detail::optional_view(detail::call<const char *>(nullptr, f));
    }
    template <class F> static std::uint64_t number(F &&f) { return detail::call(std::uint64_t(0), f); }
    template <class F> static void run(F &&f) {
        detail::call(done(), [&] { return f(), done(); });
    }
    dur_ctx *ctx_;
};

/* Steps that are undone together.  Not in a destructor: compensate() waits. */
class saga {
  public:
    explicit saga(const context &ctx) : saga_(dur_saga_begin(ctx.c())) {}
    void undo(const durite::activity &what) const {
        dur_activity_args args = what.c();
        detail::call(done(), [&] { return dur_saga_undo_ex(saga_, &args), done(); });
    }
    /* Last first; how many of them failed. */
    std::size_t compensate() const {
        return detail::call(std::size_t(0), [&] { return dur_saga_compensate(saga_); });
    }

  private:
    dur_saga *saga_;
};

/* What the handler receives until this object goes is freed then, futures made meanwhile are dropped. */
class scope {
  public:
    explicit scope(const context &ctx) : scope_(dur_scope_begin(ctx.c())) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() {
        detail::quietly([this] { dur_scope_end(scope_); });
    }

  private:
    dur_scope *scope_;
};

} // namespace durite

#endif
