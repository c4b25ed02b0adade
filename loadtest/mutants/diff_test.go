// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
)

const song = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"

func TestApply_ChangesTheLinesOfEachHunk(t *testing.T) {
	f := parsed(t, `
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
@@ -6,2 +6,3 @@
 six
+six and a half
 seven
`)
	got, err := f.apply(song)
	if want := "one\nTWO\nthree\nfour\nfive\nsix\nsix and a half\nseven\n"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestApply_FindsLinesThatHaveMoved(t *testing.T) {
	f := parsed(t, "@@ -2,2 +2,1 @@\n two\n-three\n")
	got, err := f.apply("zero\nzero\n" + song)
	if want := "zero\nzero\none\ntwo\nfour\nfive\nsix\nseven\n"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestApply_TakesTheNearestOfSeveralPlaces(t *testing.T) {
	again := song + song + song
	for line, want := range map[string]int{"1": 0, "9": 1, "14": 2} {
		f := parsed(t, "@@ -"+line+",1 +"+line+",1 @@\n-two\n+TWO\n")
		got, err := f.apply(again)
		if err != nil || strings.Count(got[:strings.Index(got, "TWO")], "one") != want+1 {
			t.Errorf("from line %s: %q, %v; want the change in song %d", line, got, err, want)
		}
	}
}

func TestApply_AHunkAfterAMovedOneMovesToo(t *testing.T) {
	f := parsed(t, "@@ -1,1 +1,1 @@\n-three\n+THREE\n@@ -3,1 +3,1 @@\n-five\n+FIVE\n")
	got, err := f.apply(song + song)
	if want := strings.NewReplacer("three", "THREE", "five", "FIVE").Replace(song) + song; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestApply_NamesAMissingLine(t *testing.T) {
	f := parsed(t, "@@ -3,2 +3,1 @@\n three\n-3.5\n")
	if _, err := f.apply(song); err == nil || !strings.Contains(err.Error(), "song.txt") || !strings.Contains(err.Error(), "3.5") {
		t.Errorf("error %v, want the file and the line", err)
	}
	f = parsed(t, "@@ -3,2 +3,1 @@\n three\n-five\n")
	if _, err := f.apply(song); err == nil || !strings.Contains(err.Error(), "not as one block") {
		t.Errorf("error %v", err)
	}
}

func TestParseDiff_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	const head = "--- a/song.txt\n+++ b/song.txt\n"
	for text, want := range map[string]string{
		"":              "no file",
		"@@ -1 +1 @@\n": "no file",
		"--- a/song.txt\n+++ /dev/null\n@@ -1 +1 @@\n-one\n": "want +++ b/FILE",
		head:                               "no hunk",
		head + "-one\n":                    "not within a hunk",
		head + "@@ -x +1 @@\n-one\n":       "want @@",
		head + "@@ -1 +1 @@\n-one\n?two\n": "neither context nor a change",
		head + "@@ -1 +1 @@\n one\n":       "changes nothing",
	} {
		if files, err := parseDiff(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, files, err, want)
		}
	}
}

// parsed is a diff of song.txt.
func parsed(t *testing.T, hunks string) fileDiff {
	t.Helper()
	files, err := parseDiff("diff --git a/song.txt b/song.txt\nindex 1..2\n--- a/song.txt\n+++ b/song.txt\n" + strings.TrimPrefix(hunks, "\n"))
	if err != nil || len(files) != 1 || files[0].path != "song.txt" {
		t.Fatalf("%v, %v", files, err)
	}
	return files[0]
}
