// Stub of a Gloo header that ProcessGroupGloo.hpp includes; unused. See README.md.
#pragma once
