// SPDX-License-Identifier: MIT

// Package uplot holds uPlot 1.6.32, which draws plots on a page, as npm published it, and its licence, MIT.
package uplot

import _ "embed"

// JS defines uPlot.
//
//go:embed uPlot.iife.min.js
var JS string

// CSS is its style sheet.
//
//go:embed uPlot.min.css
var CSS string
