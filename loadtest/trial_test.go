package loadtest

import (
	"strings"
	"testing"

	"shop/loadtest/fault"
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

func TestTrial_EachSuccessThatIsMissingBreaksLiveness(t *testing.T) {
	h := NewHistory()
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}}, proof: &Proof{}, Run: &Run{Retrier: &Retrier{History: h}}, silent: []string{"a silent key"},
		events: []fault.Event{{What: "a fault", At: h.Epoch, Until: h.Epoch}},
	}
	found := strings.Join(r.lifeless([]Record{{Intent: Intent{Key: "an open key"}, Outcome: Open}}), "; ")
	for _, sign := range []string{"a fault", "a silent key", "an open key"} {
		if !strings.Contains(found, sign) {
			t.Errorf("%q is not in %q", sign, found)
		}
	}
}
