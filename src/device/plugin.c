/* SPDX-License-Identifier: MIT */
/* Loading a device's library; see plugin.h. */
#include "device/plugin.h"

#include <dlfcn.h>
#include <string.h>

#include "base/plugin.h"

static const char *loader_reason(void)
{
    const char *reason = dlerror();

    return reason ? reason : "the loader gives no reason";
}

static err_t check(const struct device_plugin *p, const char *path, struct error *e)
{
    if (!p) return FAIL(e, ERR_UNSUPPORTED, "%s is no plugin of ctitan: it lacks " DEVICE_PLUGIN_SYMBOL, path);
    if (p->abi != DEVICE_PLUGIN_ABI) /* nothing behind this number can be trusted */
        return FAIL(e, ERR_UNSUPPORTED, "%s has the plugin interface %d, this program has %d: run make again", path,
                    p->abi, DEVICE_PLUGIN_ABI);
    if (strcmp(p->version, CTITAN_VERSION) != 0)
        return FAIL(e, ERR_UNSUPPORTED, "%s was built for ctitan %s, this is ctitan %s: run make again", path,
                    p->version, CTITAN_VERSION);
    return ERR_NONE;
}

err_t device_plugin_load(const struct device_plugin **out, const char *file, struct error *e)
{
    const struct device_plugin *plugin;
    struct str path = {0}, tried = {0};
    void *library;
    err_t rc;

    *out = NULL;
    if (!plugin_find(file, &path, &tried)) {
        rc = FAIL(e, ERR_MISSING, "%s is in none of %s", file, str_text(&tried));
        goto out;
    }
    rc = str_ok(&path, e);
    if (rc) goto out;
    library = dlopen(str_text(&path), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rc = FAIL(e, ERR_UNSUPPORTED, "%s", loader_reason());
        goto out;
    }
    plugin = dlsym(library, DEVICE_PLUGIN_SYMBOL);
    rc = check(plugin, str_text(&path), e);
    if (rc)
        dlclose(library);
    else
        *out = plugin;
out:
    str_release(&path);
    str_release(&tried);
    return rc;
}
