// Named by ProcessGroupGloo.hpp; nothing of it is used. See README.md.
#pragma once
