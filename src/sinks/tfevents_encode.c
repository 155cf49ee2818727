/* SPDX-License-Identifier: MIT */
/*
 * Events as bytes; see tfevents_encode.h. Messages are built on the stack from borrowed strings and packed at
 * once, so nothing here owns a message.
 */
#include "sinks/tfevents_encode.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tfevents.pb-c.h"

uint32_t tfevents_masked_crc(const void *bytes, size_t n)
{
    uint32_t crc = hash_crc32c(0, bytes, n);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void add_little_endian(struct str *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) str_add_char(out, (char)(value >> 8 * i & 0xff));
}

void tfevents_add_record(struct str *out, const void *bytes, size_t n)
{
    size_t start = out->length;

    add_little_endian(out, n, 8);
    if (out->failed) return;
    add_little_endian(out, tfevents_masked_crc(out->text + start, 8), 4);
    str_add_bytes(out, bytes, n);
    add_little_endian(out, tfevents_masked_crc(bytes, n), 4);
}

float tfevents_float(double value)
{
    if (isfinite(value) && fabs(value) > FLT_MAX) return value > 0 ? FLT_MAX : -FLT_MAX;
    return (float)value;
}

static void add_event(struct str *out, const Tfevents__Event *event)
{
    size_t n = tfevents__event__get_packed_size(event);
    uint8_t *bytes = mem_alloc(n);

    if (!bytes) {
        out->failed = true;
        return;
    }
    tfevents__event__pack(event, bytes);
    tfevents_add_record(out, bytes, n);
    mem_free(bytes);
}

static Tfevents__Event event_at(double wall_s, int64_t step)
{
    Tfevents__Event event = TFEVENTS__EVENT__INIT;

    event.wall_time = wall_s;
    event.step = step;
    return event;
}

void tfevents_add_version(struct str *out, double wall_s)
{
    Tfevents__Event event = event_at(wall_s, 0);

    event.what_case = TFEVENTS__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    add_event(out, &event);
}

void tfevents_add_start(struct str *out, double wall_s, int64_t step)
{
    Tfevents__Event event = event_at(wall_s, step);
    Tfevents__SessionLog session = TFEVENTS__SESSION_LOG__INIT;

    session.status = TFEVENTS__SESSION_LOG__STATUS__START;
    event.what_case = TFEVENTS__EVENT__WHAT_SESSION_LOG;
    event.session_log = &session;
    add_event(out, &event);
}

static void add_summary(struct str *out, double wall_s, int64_t step, Tfevents__Value **values, size_t n)
{
    Tfevents__Event event = event_at(wall_s, step);
    Tfevents__Summary summary = TFEVENTS__SUMMARY__INIT;

    summary.value = values;
    summary.n_value = n;
    event.what_case = TFEVENTS__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    add_event(out, &event);
}

void tfevents_add_row(struct str *out, const struct metric_row *row)
{
    Tfevents__Value values[METRIC_COUNT], *pointers[METRIC_COUNT];
    size_t n = 0;

    for (int i = 0; i < METRIC_COUNT; i++) {
        if (!metric_row_has(row, i)) continue;
        tfevents__value__init(&values[n]);
        values[n].tag = (char *)metric_table[i].tag;
        values[n].value_case = TFEVENTS__VALUE__VALUE_SIMPLE_VALUE;
        values[n].simple_value = tfevents_float(row->value[i]);
        pointers[n] = &values[n];
        n++;
    }
    add_summary(out, row->wall_s, row->step, pointers, n);
}

void tfevents_add_text(struct str *out, const struct sink_text *text)
{
    Tfevents__Value value = TFEVENTS__VALUE__INIT, *values[] = {&value};
    Tfevents__SummaryMetadata metadata = TFEVENTS__SUMMARY_METADATA__INIT;
    Tfevents__PluginData plugin = TFEVENTS__PLUGIN_DATA__INIT;
    Tfevents__Tensor tensor = TFEVENTS__TENSOR__INIT;
    Tfevents__TensorShape shape = TFEVENTS__TENSOR_SHAPE__INIT;
    Tfevents__TensorShape__Dim dim = TFEVENTS__TENSOR_SHAPE__DIM__INIT, *dims[] = {&dim};
    ProtobufCBinaryData string;
    struct str tag = {0}, clean = {0};

    str_addf(&tag, "%s/text_summary", text->tag);
    utf8_clean(&clean, text->text, strlen(text->text)); /* readers stop at invalid UTF-8 */
    string = (ProtobufCBinaryData){clean.length, (uint8_t *)str_text(&clean)};
    plugin.plugin_name = (char *)"text";
    metadata.plugin_data = &plugin;
    dim.size = 1;
    shape.n_dim = 1;
    shape.dim = dims;
    tensor.dtype = TFEVENTS__TENSOR__DATA_TYPE__DT_STRING;
    tensor.tensor_shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &string;
    value.tag = (char *)str_text(&tag);
    value.metadata = &metadata;
    value.value_case = TFEVENTS__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    add_summary(out, text->wall_s, text->step, values, 1);
    if (tag.failed || clean.failed) out->failed = true;
    str_release(&tag);
    str_release(&clean);
}

/* ---- hyperparameters: metadata only, in two values of fixed tags ---- */

static void add_hparams_value(struct str *out, double wall_s, const char *tag, const Tfevents__HParamsPluginData *data)
{
    Tfevents__Value value = TFEVENTS__VALUE__INIT, *values[] = {&value};
    Tfevents__SummaryMetadata metadata = TFEVENTS__SUMMARY_METADATA__INIT;
    Tfevents__PluginData plugin = TFEVENTS__PLUGIN_DATA__INIT;
    size_t n = tfevents__hparams_plugin_data__get_packed_size(data);
    uint8_t *content = mem_alloc(n);

    if (!content) {
        out->failed = true;
        return;
    }
    tfevents__hparams_plugin_data__pack(data, content);
    plugin.plugin_name = (char *)"hparams";
    plugin.content = (ProtobufCBinaryData){n, content};
    metadata.plugin_data = &plugin;
    value.tag = (char *)tag;
    value.metadata = &metadata;
    add_summary(out, wall_s, 0, values, 1);
    mem_free(content);
}

static Tfevents__HParamInfo__DataType type_of(const struct tfevents_hparam *p)
{
    return p->kind == TFEVENTS_TEXT   ? TFEVENTS__HPARAM_INFO__DATA_TYPE__STRING
           : p->kind == TFEVENTS_BOOL ? TFEVENTS__HPARAM_INFO__DATA_TYPE__BOOL
                                      : TFEVENTS__HPARAM_INFO__DATA_TYPE__FLOAT64;
}

static void add_experiment(struct str *out, struct arena *a, double wall_s, const struct tfevents_options *o)
{
    static const enum metric_id shown[] = {METRIC_LOSS, METRIC_VALIDATION_LOSS, METRIC_TPS, METRIC_MFU};
    enum { N_SHOWN = sizeof shown / sizeof *shown };
    Tfevents__HParamsPluginData data = TFEVENTS__HPARAMS_PLUGIN_DATA__INIT;
    Tfevents__Experiment experiment = TFEVENTS__EXPERIMENT__INIT;
    Tfevents__MetricInfo metrics[N_SHOWN], *metric_pointers[N_SHOWN];
    Tfevents__MetricName names[N_SHOWN];
    size_t n = (size_t)o->n_hparams;
    Tfevents__HParamInfo *infos = arena_array(a, n, sizeof *infos), **pointers = arena_array(a, n, sizeof *pointers);

    if (!infos || !pointers) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        tfevents__hparam_info__init(&infos[i]);
        infos[i].name = (char *)o->hparams[i].name;
        infos[i].type = type_of(&o->hparams[i]);
        pointers[i] = &infos[i];
    }
    for (size_t i = 0; i < N_SHOWN; i++) {
        tfevents__metric_name__init(&names[i]);
        tfevents__metric_info__init(&metrics[i]);
        names[i].tag = (char *)metric_table[shown[i]].tag;
        metrics[i].name = &names[i];
        metric_pointers[i] = &metrics[i];
    }
    experiment.n_hparam_infos = n;
    experiment.hparam_infos = pointers;
    experiment.n_metric_infos = N_SHOWN;
    experiment.metric_infos = metric_pointers;
    data.data_case = TFEVENTS__HPARAMS_PLUGIN_DATA__DATA_EXPERIMENT;
    data.experiment = &experiment;
    add_hparams_value(out, wall_s, "_hparams_/experiment", &data);
}

static void add_session(struct str *out, struct arena *a, double wall_s, const struct tfevents_options *o)
{
    Tfevents__HParamsPluginData data = TFEVENTS__HPARAMS_PLUGIN_DATA__INIT;
    Tfevents__SessionStartInfo session = TFEVENTS__SESSION_START_INFO__INIT;
    size_t n = (size_t)o->n_hparams;
    Tfevents__HParamEntry *entries = arena_array(a, n, sizeof *entries),
                          **pointers = arena_array(a, n, sizeof *pointers);
    Tfevents__HParamValue *values = arena_array(a, n, sizeof *values);

    if (!entries || !pointers || !values) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct tfevents_hparam *p = &o->hparams[i];
        struct str clean = {0};

        tfevents__hparam_entry__init(&entries[i]);
        tfevents__hparam_value__init(&values[i]);
        if (p->kind == TFEVENTS_TEXT) {
            utf8_clean(&clean, p->text, strlen(p->text));
            values[i].kind_case = TFEVENTS__HPARAM_VALUE__KIND_STRING_VALUE;
            values[i].string_value = arena_strdup(a, str_text(&clean));
            if (!values[i].string_value) out->failed = true;
            str_release(&clean);
        } else if (p->kind == TFEVENTS_BOOL) {
            values[i].kind_case = TFEVENTS__HPARAM_VALUE__KIND_BOOL_VALUE;
            values[i].bool_value = p->number != 0;
        } else {
            values[i].kind_case = TFEVENTS__HPARAM_VALUE__KIND_NUMBER_VALUE;
            values[i].number_value = p->number;
        }
        entries[i].key = (char *)p->name;
        entries[i].value = &values[i];
        pointers[i] = &entries[i];
    }
    if (out->failed) return;
    session.n_hparams = n;
    session.hparams = pointers;
    session.group_name = (char *)o->run;
    session.start_time_secs = wall_s;
    data.data_case = TFEVENTS__HPARAMS_PLUGIN_DATA__DATA_SESSION_START_INFO;
    data.session_start_info = &session;
    add_hparams_value(out, wall_s, "_hparams_/session_start_info", &data);
}

void tfevents_add_hparams(struct str *out, double wall_s, const struct tfevents_options *o)
{
    struct arena a = {0};

    add_experiment(out, &a, wall_s, o);
    add_session(out, &a, wall_s, o);
    arena_release(&a);
}
