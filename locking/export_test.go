package locking

// For tests outside the package.
var Trust = trust
