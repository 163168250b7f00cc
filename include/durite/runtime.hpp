/*
 * runtime.hpp: the runtime in C++.  Include durite/durite.hpp.
 */
#ifndef DURITE_RUNTIME_HPP
#define DURITE_RUNTIME_HPP

#include <durite/registry.hpp>
#include <durite/runtime.h>

namespace durite {

/* Options by chained setters: runtime_options().worker_concurrency(64).  See dur_runtime_options; raw() has those that
   have no setter here. */
class runtime_options {
  public:
    runtime_options &name(std::string_view shown) { return name_ = detail::text(shown, "runtime: the name"), *this; }
    runtime_options &worker_concurrency(std::uint32_t threads) { return raw_.worker_concurrency = threads, *this; }
    runtime_options &orchestration_concurrency(std::uint32_t loops) {
        return raw_.orchestration_concurrency = loops, *this;
    }
    runtime_options &activities_only(bool yes = true) { return raw_.activities_only = yes, *this; }
    runtime_options &tags(dur_tag_choice which, std::vector<std::string> tags = {}) {
        return raw_.tags = which, tags_ = std::move(tags), *this;
    }
    runtime_options &max_attempts(std::uint32_t most) { return raw_.max_attempts = most, *this; }
    runtime_options &owner_timeout(milliseconds time) { return raw_.owner_timeout_ms = detail::ms(time), *this; }
    runtime_options &cancel_grace(milliseconds time) { return raw_.cancel_grace_ms = detail::ms(time), *this; }
    runtime_options &parked_max(std::uint32_t most) { return raw_.parked_max = most, *this; }
    runtime_options &stack_bytes(std::size_t bytes) { return raw_.stack_bytes = bytes, *this; }
    runtime_options &threads(dur_threads whose) { return raw_.threads = whose, *this; }
    runtime_options &double_run(bool yes = true) { return raw_.double_run = yes, *this; }
    runtime_options &evict_every_turn(bool yes = true) { return raw_.evict_every_turn = yes, *this; }
    /* How long running activities may take to end when the runtime object goes. */
    runtime_options &stop_grace(milliseconds time) { return grace_ = time, *this; }
    dur_runtime_options &raw() { return raw_; }

  private:
    friend class runtime;
    dur_runtime_options raw_ = detail::sized<dur_runtime_options>();
    std::optional<std::string> name_;
    std::vector<std::string> tags_;
    milliseconds grace_ = std::chrono::seconds(10);
};

/* The threads that run orchestrations and activities, until this object goes.  Any thread, but not one of a handler or
   an activity. */
class runtime {
  public:
    runtime(const store &on, const handlers &what, const runtime_options &options = {})
        : runtime(try_start(on, what, options).value()) {}
    static expected<runtime> try_start(const store &on, const handlers &what, const runtime_options &options = {}) {
        dur_runtime_options args = options.raw_;
        std::vector<const char *> tags;
        for (const std::string &tag : options.tags_)
            tags.push_back(detail::c(tag, "a worker tag"));
        tags.push_back(nullptr);
        if (!options.tags_.empty()) args.worker_tags = tags.data();
        if (options.name_) args.name = detail::c(*options.name_, "name");
        auto kept = std::make_unique<handlers>(what);
        args.store = on.c();
        args.handlers = kept->c();
        dur_error err = DUR_ERROR_INIT;
        dur_runtime *out = nullptr;
        if (dur_runtime_start(&out, &args, &err) != DUR_OK) return expected<runtime>(err);
        return runtime(out, std::move(kept), options.grace_);
    }
    runtime(runtime &&other) noexcept
        : runtime_(std::exchange(other.runtime_, nullptr)), handlers_(std::move(other.handlers_)),
          grace_(other.grace_) {}
    runtime &operator=(runtime &&other) noexcept {
        end(nullptr);
        runtime_ = std::exchange(other.runtime_, nullptr);
        handlers_ = std::move(other.handlers_);
        grace_ = other.grace_;
        return *this;
    }
    ~runtime() {
        if (end(nullptr) == DUR_EDEADLK) (void)handlers_.release(); /* it runs on, and they are its */
    }

    /* See dur_runtime_stop: DUR_EBUSY names who has never returned. */
    void stop(milliseconds grace) {
        dur_error err = DUR_ERROR_INIT;
        grace_ = grace;
        if (end(&err) != DUR_OK) throw error(err);
    }
    dur_metrics metrics() const {
        dur_metrics out = detail::sized<dur_metrics>();
        dur_error err = DUR_ERROR_INIT;
        if (dur_runtime_metrics(&out, runtime_, &err) != DUR_OK) throw error(err);
        return out;
    }
    dur_runtime *c() const noexcept { return runtime_; }

  private:
    runtime(dur_runtime *owned, std::unique_ptr<handlers> kept, milliseconds grace)
        : runtime_(owned), handlers_(std::move(kept)), grace_(grace) {}
    int end(dur_error *err) noexcept {
        int code = dur_runtime_stop(runtime_, detail::ms(grace_), err);
        if (code == DUR_EDEADLK) return code; /* nothing happened */
        runtime_ = nullptr;
        if (code != DUR_OK) (void)handlers_.release(); /* a thread that was left behind may be in one of them */
        handlers_.reset();
        return code;
    }
    dur_runtime *runtime_;
    std::unique_ptr<handlers> handlers_;
    milliseconds grace_;
};

} // namespace durite

#endif
