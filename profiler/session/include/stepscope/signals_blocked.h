// SignalsBlocked: blocks all signals on the calling thread while it lives. A
// thread that is started meanwhile inherits the blocked signals for good. This
// keeps the program's handlers off threads that the program does not know.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace stepscope {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace stepscope
