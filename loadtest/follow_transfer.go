package loadtest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// told is what a client reads of a transfer.
type told struct {
	ID        uuid.UUID `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
}

// settle is what a client does about a hold: it posts and voids it at the same
// moment, on two replicas. The moment is counted from the end of the hold by the
// database's clock; if that is not ours, it is only another moment.
func settle(r Record) []Shot {
	if r.Action != Reserve || r.Outcome != OK || r.Move.Hold.Left {
		return nil
	}
	var t told
	if json.Unmarshal(r.body, &t) != nil {
		return nil // not as told: I-ACK
	}
	h, at := r.Move.Hold, time.Until(t.ExpiresAt)+r.Move.Hold.Settle
	var part int64
	if h.Part {
		part = max(1, r.Move.Amount/2)
	}
	return []Shot{{at, h.Post, postIntent(r, t.ID, part)}, {at, h.Void, voidIntent(r, t.ID)}}
}

func postIntent(r Record, id uuid.UUID, part int64) *Intent {
	i := endIntent(r, PostHold, id, part)
	if part > 0 {
		i.Body = encode(map[string]int64{"amount": part})
	}
	return i
}

func voidIntent(r Record, id uuid.UUID) *Intent { return endIntent(r, VoidHold, id, 0) }

func endIntent(r Record, action Action, id uuid.UUID, amount int64) *Intent {
	return &Intent{
		Client: r.Client, Key: string(action) + "-" + r.Key, Action: action, Method: http.MethodPost,
		Path: "/v1/transfers/" + id.String() + "/" + string(action),
		Move: &Move{From: r.Move.From, To: r.Move.To, Amount: amount, Of: id},
	}
}
