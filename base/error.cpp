// Destructors of the exceptions. They are defined here, so that the tables that `catch` compares
// lie in one library and not in each that throws or catches.
#include "millrace/error.h"

namespace millrace {

Error::~Error() = default;
RunError::~RunError() = default;
UsageError::~UsageError() = default;
DataError::~DataError() = default;
DeviceError::~DeviceError() = default;

}  // namespace millrace
