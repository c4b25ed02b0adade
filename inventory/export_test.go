package inventory

// For tests outside the package.
var LockKey = lockKey

func LockKeys(skus []string) []int64 { return (&purchase{skus: skus}).lockKeys() }
