#include "pipeline/spans.h"
