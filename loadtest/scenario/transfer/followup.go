package transfer

import (
	"encoding/json"
	"time"

	"shop/loadtest"

	"github.com/google/uuid"
)

// answer is what a client reads of a transfer.
type answer struct {
	ID        uuid.UUID `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
}

// settle is what a client does about a hold: it posts and voids it at the same
// moment, on two replicas. The moment is counted from the end of the hold by the
// database's clock; if that is not ours, it is only another moment.
func settle(r loadtest.Record) []loadtest.ScheduledRequest {
	m := move(r.Intent)
	if r.Action != Reserve || r.Outcome != loadtest.OK || m.Hold.Left {
		return nil
	}
	var t answer
	if json.Unmarshal(r.Body, &t) != nil {
		return nil // not as told: I-ACK
	}
	h, at := m.Hold, time.Until(t.ExpiresAt)+m.Hold.Settle
	var part int64
	if h.Part {
		part = max(1, m.Amount/2)
	}
	return []loadtest.ScheduledRequest{
		{At: at, Replica: h.Post, Intent: postIntent(r, t.ID, part)},
		{At: at, Replica: h.Void, Intent: voidIntent(r, t.ID)},
	}
}

func postIntent(r loadtest.Record, id uuid.UUID, part int64) *loadtest.Intent {
	i := endIntent(r, PostHold, id, part)
	if part > 0 {
		i.Body = loadtest.Encode(map[string]int64{"amount": part})
	}
	return i
}

func voidIntent(r loadtest.Record, id uuid.UUID) *loadtest.Intent {
	return endIntent(r, VoidHold, id, 0)
}

func endIntent(r loadtest.Record, action loadtest.Action, id uuid.UUID, amount int64) *loadtest.Intent {
	m := move(r.Intent)
	path := "/v1/transfers/" + id.String() + "/" + string(action)
	return intend(r.Client, string(action)+"-"+r.Key, action, path, &Move{From: m.From, To: m.To, Amount: amount, Of: id})
}
