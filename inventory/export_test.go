package inventory

// For tests outside the package.
var LockKey = lockKey
