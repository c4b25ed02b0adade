// SPDX-License-Identifier: MIT

// Package docs holds the pages of the repository, and embeds the one that the lab shows. Its tests check that the
// snippets, links and commands of the pages exist.
package docs

import _ "embed"

// Patterns is patterns.md.
//
//go:embed patterns.md
var Patterns []byte
