package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
	keyBytesMax    = 255
)

// parseKey reads the header Idempotency-Key. The draft standard wants a quoted
// string (RFC 8941, section 3.3.3), most clients send it bare: both are taken, and "a" and
// a are the same key. Otherwise a client that changes its library would pay twice.
func parseKey(header string) (string, error) {
	key := strings.Trim(header, " \t")
	if key == "" {
		return "", errMissingKey
	}
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", explain(errMalformed, "%s: not a quoted string as in RFC 8941.", headerKey)
		}
	}
	if len(key) < 1 || len(key) > keyBytesMax {
		return "", explain(errMalformed, "%s: 1 to %d characters, please.", headerKey, keyBytesMax)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", explain(errMalformed, "%s: printable ASCII only, please.", headerKey)
		}
	}
	return key, nil
}

// unquote reads an sf-string: only \" and \\ are escaped, and nothing follows the closing quote.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// keyHash names a key in the log, where the key itself does not belong.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

// fingerprint is what must be equal for two requests to be the same intent:
// method, route and meaning, not bytes. White space, the order of members and
// the order of lines do not count; the strategy is no part of the intent either.
func fingerprint(operation string, intent any) ([32]byte, error) {
	data, err := json.Marshal(intent)
	if err != nil {
		return [32]byte{}, fmt.Errorf("api: fingerprint: %w", err)
	}
	return sha256.Sum256(slices.Concat([]byte(operation+"\n"), data)), nil
}

func fingerprintOrder(lines []inventory.Line) ([32]byte, error) {
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b inventory.Line) int { return cmp.Compare(a.SKU, b.SKU) })
	return fingerprint("POST /v1/orders", sorted)
}

func fingerprintCancel(id uuid.UUID) ([32]byte, error) {
	return fingerprint("POST /v1/orders/{id}/cancel", id)
}

// fingerprintTransfer has ids and durations as values: another spelling is the same intent.
func fingerprintTransfer(m transfer.Move, expiresIn time.Duration) ([32]byte, error) {
	return fingerprint("POST /v1/transfers", struct {
		Move      transfer.Move
		ExpiresIn time.Duration
	}{m, expiresIn})
}

func fingerprintPost(id uuid.UUID, amount int64) ([32]byte, error) {
	return fingerprint("POST /v1/transfers/{id}/post", amountOf{id, amount})
}

// amountOf is an intent about one thing.
type amountOf struct {
	ID     uuid.UUID
	Amount int64
}

func fingerprintVoid(id uuid.UUID) ([32]byte, error) {
	return fingerprint("POST /v1/transfers/{id}/void", id)
}

// The wallet in the path is part of the intent: one key for two wallets is two intents.
func fingerprintCredit(id uuid.UUID, amount int64) ([32]byte, error) {
	return fingerprint("POST /v1/wallets/{id}/credits", amountOf{id, amount})
}

func fingerprintDebit(id uuid.UUID, amount int64) ([32]byte, error) {
	return fingerprint("POST /v1/wallets/{id}/debits", amountOf{id, amount})
}

func fingerprintPayment(t wallet.Transfer) ([32]byte, error) {
	return fingerprint("POST /v1/wallets/{id}/payments", t)
}
