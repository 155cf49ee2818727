/* SPDX-License-Identifier: MIT */
/* The communicator of one rank alone: every collective is a copy or nothing. */
#ifndef COMM_SELF_H
#define COMM_SELF_H

#include "comm/comm.h"

err_t comm_self_create(struct comm **out, struct error *e) MUST_CHECK;

#endif
