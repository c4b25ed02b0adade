package loadtest

// Transfer is the flow of money.
var Transfer = Flow{Name: transferFlow}
