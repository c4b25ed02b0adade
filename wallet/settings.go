// SPDX-License-Identifier: MIT

package wallet

import (
	"errors"
	"fmt"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
)

// The bounds of every wait.
const (
	ClientTimeout  = 2 * time.Second // a statement in a transaction, a commit, and the retries of WithTransaction, whose own default is 120 s
	BonusTimeout   = 1 * time.Second // a call of the bonus service, while the wallet is locked
	RequestTimeout = 4 * time.Second // the turn and all attempts; a commit that has begun by then may take a few ClientTimeouts more, and a batch another RequestTimeout

	// QueueMax is how many requests may wait in this process for one wallet, unless Config
	// has another bound. One client may have a quarter of the places. QueueMax is well below the
	// server's bound on requests in flight (256), so that one wallet cannot take all of those.
	QueueMax = 128

	// runShared is how long a process keeps a wallet that others want too, and 20 times as long one that
	// it has had alone (locking.Line). Then it leaves the wallet to the others for a gap,
	// which is longer than the longest pause (heldPause) of a waiting head.
	runShared = 50 * time.Millisecond
	gap       = 15 * time.Millisecond
	heldPause = 10 * time.Millisecond

	// PoolMax is the number of connections to the primary, majorityMax how many of them may
	// wait for a majority after their turn. The rest are for reads and for statements, which
	// are short.
	PoolMax     = 100
	majorityMax = 64

	// heartbeat is how soon the driver probes a server again that has reported a shutdown.
	// The driver sends nothing there before the server answers. The driver's own 10 s would
	// be longer than any request waits.
	heartbeat = 500 * time.Millisecond

	// attemptsMax bounds how often one request runs its callback, roundsMax how often it
	// begins a new WithTransaction after a commit without a result.
	attemptsMax = 20
	roundsMax   = 10
)

// errRequestTimeout ends a request after RequestTimeout. If a commit is unknown by then,
// request returns ErrOutcomeUnknown instead.
var errRequestTimeout = locking.Like(locking.ErrBusy, fmt.Errorf("wallet: not done after %v", RequestTimeout))

// The read and write concerns. None of them is left to defaults: a server before 5.0, or a
// replica set with an arbiter, acknowledges a commit that only the primary has (writeConcern
// 1), and a fail-over rolls it back.
var (
	writes    = writeconcern.Majority()
	atPrimary = writeconcern.W1() // the first of two commits: see durably
	reads     = readconcern.Majority()
	snapshot  = readconcern.Snapshot()
	newest    = readconcern.Linearizable()
	primary   = readpref.Primary()
)

// ClientOptions parses uri and bounds every wait. A commit runs on a ctx that cannot be
// cancelled: ClientTimeout is its only bound.
func ClientOptions(uri string) (*options.ClientOptions, error) {
	o := options.Client().ApplyURI(uri).
		SetTimeout(ClientTimeout).
		SetServerSelectionTimeout(ClientTimeout).
		SetHeartbeatInterval(heartbeat).
		SetMaxPoolSize(PoolMax).
		SetWriteConcern(writes).SetReadConcern(reads).SetReadPreference(primary).
		SetRegistry(Registry())
	err := o.Validate()
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return nil, fmt.Errorf("wallet: DNS does not name the hosts of a mongodb+srv URL: %s; where DNS may be down, name them in mongodb://host1:27017,host2:27017/database?replicaSet=rs0", dns.Err)
	}
	if err != nil {
		// The error shows neither the URL nor the parser's error: any part of a malformed URL may be the password.
		return nil, errors.New("wallet: not a MongoDB URL (not shown, because it may contain a password): want mongodb://user:password@host:27017/database?replicaSet=rs0")
	}
	return o, nil
}
