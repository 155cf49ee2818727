/* SPDX-License-Identifier: MIT */
/* Stop requests; see signals.h. A handler gets no context, so one pointer says where the flag is. */
#include "train/signals.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const int handled[SIGNALS_COUNT] = {SIGTERM, SIGINT, SIGUSR1};
static const int ignored[SIGNALS_IGNORED] = {SIGPIPE, SIGXFSZ};

static struct signals *_Atomic current; /* NULL: none installed */

/* Only lock-free atomics and _exit: both are safe in a handler. */
static void on_signal(int number)
{
    struct signals *s = atomic_load(&current);

    if (!s) return;
    atomic_store(&s->pending, number);
    if (number == SIGINT && atomic_fetch_add(&s->interrupts, 1) >= 1) _exit(130);
}

err_t signals_install(struct signals *s, struct error *e)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    struct signals *none = NULL;

    memset(s, 0, sizeof *s);
    if (!atomic_compare_exchange_strong(&current, &none, s))
        return FAIL(e, ERR_BUSY, "signal handlers are installed already in this process");
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS_COUNT; i++) sigaction(handled[i], &action, &s->former[i]);
    for (int i = 0; i < SIGNALS_IGNORED; i++) sigaction(ignored[i], &ignore, &s->former_ignored[i]);
    s->installed = true;
    return ERR_NONE;
}

void signals_restore(struct signals *s)
{
    if (!s->installed) return;
    for (int i = 0; i < SIGNALS_COUNT; i++) sigaction(handled[i], &s->former[i], NULL);
    for (int i = 0; i < SIGNALS_IGNORED; i++) sigaction(ignored[i], &s->former_ignored[i], NULL);
    atomic_store(&current, NULL);
    s->installed = false;
}

int signals_pending(const struct signals *s) { return s ? atomic_load(&s->pending) : 0; }

const char *signals_name(int signal_number)
{
    switch (signal_number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    default: return "signal";
    }
}
