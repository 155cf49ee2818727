/* SPDX-License-Identifier: MIT */
/* The streams and events of devices whose calls return when their work is done, and host memory for their copies: rows
 * for their struct device_ops. */
#ifndef DEVICE_IMMEDIATE_H
#define DEVICE_IMMEDIATE_H

#include "device/device.h"

err_t immediate_stream_create(struct device *d, struct stream **out, struct error *e) MUST_CHECK;
void immediate_stream_destroy(struct device *d, struct stream *s);
err_t immediate_stream_wait(struct device *d, struct stream *s, struct event *event, struct error *e) MUST_CHECK;
err_t immediate_stream_synchronize(struct device *d, struct stream *s, struct error *e) MUST_CHECK;
err_t immediate_event_create(struct device *d, struct event **out, struct error *e) MUST_CHECK;
void immediate_event_destroy(struct device *d, struct event *event);
err_t immediate_event_record(struct device *d, struct event *event, struct stream *s, struct error *e) MUST_CHECK;

err_t immediate_event_synchronize(struct device *d, struct event *event, struct error *e) MUST_CHECK;
bool immediate_event_is_done(struct device *d, struct event *event);
err_t immediate_synchronize(struct device *d, struct error *e) MUST_CHECK;
err_t immediate_host_alloc(struct device *d, size_t bytes, void **out, struct error *e) MUST_CHECK;
void immediate_host_free(struct device *d, void *p);

#endif
