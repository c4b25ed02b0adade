// SPDX-License-Identifier: MIT

package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/transfer"
	"shop/wallet"
)

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
)

// parseKey reads the header Idempotency-Key, bare or as a quoted string.
func parseKey(header string) (string, error) {
	if strings.Trim(header, " \t") == "" {
		return "", errMissingKey
	}
	key, err := idempotency.ParseKey(header)
	if err != nil {
		return "", withDetail(errMalformed, "%s: 1 to %d printable ASCII characters, bare or as a quoted string (RFC 8941).", headerKey, idempotency.KeyBytesMax)
	}
	return key, nil
}

// keyHash identifies a key in the log, which must not contain the key itself.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

// Fingerprints cover method, route and intent. Neither the order of the lines nor the
// strategy is part of the intent.

func fingerprintOrder(lines []inventory.Line) ([32]byte, error) {
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b inventory.Line) int { return cmp.Compare(a.SKU, b.SKU) })
	return idempotency.Fingerprint("POST /v1/orders", sorted)
}

func fingerprintCancel(id uuid.UUID) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/orders/{id}/cancel", id)
}

// fingerprintTransfer uses parsed ids and durations: another spelling is the same intent.
func fingerprintTransfer(m transfer.Move, expiresIn time.Duration) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/transfers", struct {
		Move      transfer.Move
		ExpiresIn time.Duration
	}{m, expiresIn})
}

func fingerprintPost(id uuid.UUID, amount int64) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/transfers/{id}/post", amountOf{id, amount})
}

// amountOf is an intent with one id and an amount.
type amountOf struct {
	ID     uuid.UUID
	Amount int64
}

func fingerprintVoid(id uuid.UUID) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/transfers/{id}/void", id)
}

// fingerprintCredit includes the wallet of the path: one key for two wallets is two intents.
func fingerprintCredit(id uuid.UUID, amount int64) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/wallets/{id}/credits", amountOf{id, amount})
}

func fingerprintDebit(id uuid.UUID, amount int64) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/wallets/{id}/debits", amountOf{id, amount})
}

func fingerprintPayment(p wallet.Payment) ([32]byte, error) {
	return idempotency.Fingerprint("POST /v1/wallets/{id}/payments", p)
}
