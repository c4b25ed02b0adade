// SPDX-License-Identifier: MIT

// Package compose runs the shop's servers: with Docker (compose.yaml, Dockerfile) and,
// in package local, without it. Its tests check compose.yaml without an engine.
package compose
