// SPDX-License-Identifier: MIT

package judge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestApart_TheStockMayBeNeitherMoreNorLessThanTheOrdersLeave(t *testing.T) {
	for _, c := range []struct {
		level Level
		found int
	}{
		{Level{"cup", 3, 3}, 0},
		{Level{"cup", 4, 3}, 1}, // a sale is missing in the row
		{Level{"cup", 3, 4}, 1}, // a unit is missing in the row
	} {
		if found := Apart([]Sample{{0, []Level{c.level}}}); len(found) != c.found {
			t.Errorf("%+v: found %v, want %d", c.level, found, c.found)
		}
	}
}

func TestWatch_ALongLoadHasFewSamplesAndTheFirstThatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		const wrong = 601 * 100 * time.Millisecond // the 602nd, which thin would leave out
		samples, err := Watch(ctx, clock, func() ([]Level, error) {
			level := Level{Name: "a"}
			if at := clock(); at >= wrong && at < wrong+SampleEvery {
				level.Says = 1
			}
			return []Level{level}, nil
		})
		if n := len(samples); err != nil || n > samplesMost || n < samplesMost/2 || len(Apart(samples)) != 1 || samples[n-1].At < 59*time.Minute {
			t.Errorf("%v: %d samples, %d apart, the last at %v", err, n, len(Apart(samples)), samples[n-1].At)
		}
	})
}
