// JSON as text is below templates, which read it, too.
#pragma once

#include "jinja/json_text.h"  // IWYU pragma: export
