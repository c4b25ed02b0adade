package loadtest

import "io"

// HTML writes the page.
func (r Report) HTML(w io.Writer) error { return nil }
