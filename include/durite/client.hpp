/*
 * client.hpp: stores and clients in C++.  Include durite/durite.hpp.
 */
#ifndef DURITE_CLIENT_HPP
#define DURITE_CLIENT_HPP

#include <durite/client.h>
#include <durite/error.hpp>
#include <durite/provider.h>

#include <memory>

namespace durite {

namespace detail {

template <auto Free> struct freed {
    template <class T> void operator()(T *what) const { Free(what); }
};

/* DUR_OK or what err says. */
template <class F> expected<done> tried(F &&f) {
    dur_error err = DUR_ERROR_INIT;
    return f(&err) == DUR_OK ? expected<done>(done()) : expected<done>(err);
}

template <class F> expected<std::string> tried_text(F &&f) {
    dur_error err = DUR_ERROR_INIT;
    char *out = nullptr;
    if (f(&out, &err) != DUR_OK) return expected<std::string>(err);
    std::unique_ptr<char, freed<dur_free>> held(out);
    return std::string(view(out));
}

} // namespace detail

/* Where everything durable lives: durite::store("sqlite:orders.db").  Any thread. */
class store {
  public:
    explicit store(std::string_view url) : store(try_open(url).value()) {}
    explicit store(dur_provider *owned) : store_(owned) {} /* closed with this object */
    static expected<store> try_open(std::string_view url) {
        std::string own = detail::text(url, "open: the URL");
        dur_error err = DUR_ERROR_INIT;
        dur_provider *out = nullptr;
        if (dur_open(&out, own.c_str(), &err) != DUR_OK) return expected<store>(err);
        return store(out);
    }
    store(store &&) = default;
    store &operator=(store &&) = default;
    dur_provider *c() const noexcept { return store_.get(); }

  private:
    template <class T> friend class expected;
    store(const store &) = delete;
    struct closer {
        void operator()(dur_provider *owned) const { dur_provider_close(owned); }
    };
    std::unique_ptr<dur_provider, closer> store_;
};

/* A start: durite::start("Order", input).instance("order-1").delay(5s).  See dur_start_args. */
class start {
  public:
    explicit start(std::string_view name, std::string_view input = {})
        : name_(detail::text(name, "start: the name")), input_(detail::text(input, "start: the input")) {}
    start &instance(std::string_view id) { return instance_ = detail::text(id, "start: the instance"), *this; }
    start &version(std::string_view exact) { return version_ = detail::text(exact, "start: the version"), *this; }
    start &delay(milliseconds time) { return delay_ms_ = detail::ms(time), *this; }
    start &exists(dur_start_policy policy) { return exists_ = policy, *this; }

    /* Points into this object. */
    dur_start_args c() const {
        dur_start_args args = {};
        args.size = sizeof(args);
        args.name = name_.c_str();
        args.input = input_.c_str();
        args.instance = instance_ ? instance_->c_str() : nullptr;
        args.version = version_ ? version_->c_str() : nullptr;
        args.delay_ms = delay_ms_;
        args.exists = exists_;
        return args;
    }

  private:
    std::string name_, input_;
    std::optional<std::string> instance_, version_;
    std::uint64_t delay_ms_ = 0;
    dur_start_policy exists_ = DUR_START_FAIL;
};

/* A message to an instance: durite::message("order-1", "Paid", "42").id("payment-7").  See dur_message_args. */
class message {
  public:
    message(std::string_view instance, std::string_view name, std::string_view data = {})
        : instance_(detail::text(instance, "message: the instance")), name_(detail::text(name, "message: the name")),
          data_(detail::text(data, "message: the data")) {}
    message &id(std::string_view once) { return id_ = detail::text(once, "message: the id"), *this; }
    message &delay(milliseconds time) { return delay_ms_ = detail::ms(time), *this; }

    /* Points into this object. */
    dur_message_args c() const {
        dur_message_args args = {};
        args.size = sizeof(args);
        args.instance = instance_.c_str();
        args.name = name_.c_str();
        args.data = data_.c_str();
        args.message_id = id_ ? id_->c_str() : nullptr;
        args.delay_ms = delay_ms_;
        return args;
    }

  private:
    std::string instance_, name_, data_;
    std::optional<std::string> id_;
    std::uint64_t delay_ms_ = 0;
};

/* What is known of an instance: info->status, info->output, … */
using instance_info = std::unique_ptr<dur_instance_info, detail::freed<dur_instance_info_free>>;

/* Starting orchestrations and talking to them.  See client.h for what each does, and its codes; c() for the rest of
   it.  Borrowed, as act.client() gives it.  Any thread. */
class client_ref {
  public:
    explicit client_ref(dur_client *borrowed) : client_(borrowed) {}
    dur_client *c() const noexcept { return client_; }

    void start(const durite::start &what) const { try_start(what).value(); }
    expected<done> try_start(const durite::start &what) const {
        dur_start_args args = what.c();
        return detail::tried([&](dur_error *err) { return dur_client_start_ex(client_, &args, err); });
    }
    /* Start it, or attach to the instance that has the id, and wait for its result: done again, it gives the recorded
       answer.  Of a start, delay and exists do not count here.  Timeout 0: as long as it takes. */
    std::string run(const durite::start &what, milliseconds timeout = milliseconds(0)) const {
        return try_run(what, timeout).value();
    }
    expected<std::string> try_run(const durite::start &what, milliseconds timeout = milliseconds(0)) const {
        dur_start_args given = what.c();
        dur_run_args args = {};
        args.size = sizeof(args);
        args.name = given.name;
        args.input = given.input;
        args.instance = given.instance;
        args.version = given.version;
        args.timeout_ms = detail::ms(timeout);
        return detail::tried_text(
            [&](char **out, dur_error *err) { return dur_client_run_ex(out, client_, &args, err); });
    }
    /* Kept until the instance asks for it: ctx.message. */
    void send(const message &what) const { try_send(what).value(); }
    void send(std::string_view instance, std::string_view name, std::string_view data = {}) const {
        send(message(instance, name, data));
    }
    expected<done> try_send(const message &what) const {
        dur_message_args args = what.c();
        return detail::tried([&](dur_error *err) { return dur_client_send_ex(client_, &args, err); });
    }
    /* Counts only while somebody waits: ctx.pulse. */
    void pulse(const message &what) const { try_pulse(what).value(); }
    void pulse(std::string_view instance, std::string_view name, std::string_view data = {}) const {
        pulse(message(instance, name, data));
    }
    expected<done> try_pulse(const message &what) const {
        dur_message_args args = what.c();
        return detail::tried([&](dur_error *err) { return dur_client_pulse_ex(client_, &args, err); });
    }

    void cancel(const std::string &instance, const std::string &reason = {}) const {
        by_reason(dur_client_cancel, instance, reason);
    }
    void terminate(const std::string &instance, const std::string &reason = {}) const {
        by_reason(dur_client_terminate, instance, reason);
    }
    void suspend(const std::string &instance, const std::string &reason = {}) const {
        by_reason(dur_client_suspend, instance, reason);
    }
    void resume(const std::string &instance) const {
        detail::tried([&](dur_error *err) {
            return dur_client_resume(client_, detail::c(instance, "instance"), err);
        }).value();
    }

    std::string result(const std::string &instance, milliseconds timeout) const {
        return try_result(instance, timeout).value();
    }
    expected<std::string> try_result(const std::string &instance, milliseconds timeout) const {
        return detail::tried_text([&](char **out, dur_error *err) {
            return dur_client_result(out, client_, detail::c(instance, "instance"), detail::ms(timeout), err);
        });
    }
    instance_info info(const std::string &instance) const {
        return looked([&](dur_instance_info **out, dur_error *err) {
            return dur_client_info(out, client_, detail::c(instance, "instance"), err);
        });
    }
    instance_info wait(const std::string &instance, milliseconds timeout) const {
        return looked([&](dur_instance_info **out, dur_error *err) {
            return dur_client_wait(out, client_, detail::c(instance, "instance"), detail::ms(timeout), err);
        });
    }
    instance_info wait_status(const std::string &instance, std::uint64_t last_version, milliseconds timeout) const {
        return looked([&](dur_instance_info **out, dur_error *err) {
            return dur_client_wait_status(out, client_, detail::c(instance, "instance"), last_version,
                                          detail::ms(timeout), err);
        });
    }
    std::optional<std::string> kv_get(const std::string &instance, const std::string &key) const {
        bool there = false;
        expected<std::string> got = detail::tried_text([&](char **out, dur_error *err) {
            int code = dur_client_kv_get(out, client_, detail::c(instance, "instance"), detail::c(key, "key"), err);
            there = *out != nullptr;
            return code;
        });
        std::string value = std::move(got).value();
        return there ? std::optional<std::string>(std::move(value)) : std::nullopt;
    }
    std::string kv_wait(const std::string &instance, const std::string &key, milliseconds timeout) const {
        return detail::tried_text([&](char **out, dur_error *err) {
                   return dur_client_kv_wait(out, client_, detail::c(instance, "instance"), detail::c(key, "key"),
                                             detail::ms(timeout), err);
               })
            .value();
    }
    /* A JSON array of its events, for dur_replay_history; execution 0: the last one. */
    std::string history(const std::string &instance, std::uint64_t execution = 0) const {
        return detail::tried_text([&](char **out, dur_error *err) {
                   return dur_client_history(out, client_, detail::c(instance, "instance"), execution, err);
               })
            .value();
    }

  private:
    using reason_fn = int(dur_client *, const char *, const char *, dur_error *);
    void by_reason(reason_fn *fn, const std::string &instance, const std::string &reason) const {
        const char *given = reason.empty() ? nullptr : detail::c(reason, "reason");
        detail::tried([&](dur_error *err) { return fn(client_, detail::c(instance, "instance"), given, err); }).value();
    }
    template <class F> static instance_info looked(F &&f) {
        dur_error err = DUR_ERROR_INIT;
        dur_instance_info *out = nullptr;
        if (f(&out, &err) != DUR_OK) throw error(err);
        return instance_info(out);
    }
    dur_client *client_;
};

/* A client of one's own. */
class client : public client_ref {
  public:
    explicit client(const store &on) : client_ref(made(on)), own_(c()) {}
    client(client &&) = default;
    client &operator=(client &&) = default;

  private:
    static dur_client *made(const store &on) {
        dur_error err = DUR_ERROR_INIT;
        dur_client *out = nullptr;
        if (dur_client_new(&out, on.c(), &err) != DUR_OK) throw error(err);
        return out;
    }
    std::unique_ptr<dur_client, detail::freed<dur_client_free>> own_;
};

} // namespace durite

#endif
