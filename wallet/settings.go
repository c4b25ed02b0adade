package wallet

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
)

// The bounds of every wait.
const (
	ClientTimeout  = 2 * time.Second // a statement in a transaction, a commit, and how long WithTransaction goes on trying; its own default is 120 s
	BonusTimeout   = 1 * time.Second // the bonus service's answer: the wallet is locked meanwhile
	RequestTimeout = 4 * time.Second // the turn and all attempts; what has begun to commit then may take a few ClientTimeouts more

	// QueueMax is how many requests wait in this process for one wallet, unless Config
	// says otherwise. A quarter of them may be of one client. It is well below what
	// the server has in flight (256), so that a wallet cannot take all of that.
	QueueMax = 128

	// runShared is how long a process keeps a wallet that others want too, runAlone
	// how long it keeps one that it had alone so far. Then it leaves it to the others
	// for a gap, which is longer than the longest pause (heldPause) of those that wait.
	runShared = 50 * time.Millisecond
	runAlone  = time.Second
	gap       = 15 * time.Millisecond
	heldPause = 10 * time.Millisecond

	// poolMax is how many connections there are to the primary, majorityMax how many
	// of them may wait for a majority after their turn: the rest are for reads, and for
	// statements, which are short.
	poolMax     = 100
	majorityMax = 64

	// heartbeat is how soon a server is asked again that has answered with an
	// error which speaks of shutting down. Nothing is sent there until it has
	// answered; the driver's own 10 s would be longer than any request waits.
	heartbeat = 500 * time.Millisecond

	// attemptsMax bounds how often one request runs its callback, roundsMax how
	// often it begins anew with WithTransaction after a commit without result.
	attemptsMax = 20
	roundsMax   = 10
)

// errRequestTimeout ends a request that has taken RequestTimeout. If a commit is
// unknown by then, request returns ErrOutcomeUnknown instead.
var errRequestTimeout = fmt.Errorf("%w: wallet: not done after %v", locking.ErrBusy, RequestTimeout)

// The read and write concerns. None of them is left to defaults: a
// server before 5.0, or a replica set with an arbiter, acknowledges a commit that
// only the primary has (writeConcern 1), and a fail-over rolls it back.
var (
	writes    = writeconcern.Majority()
	atPrimary = writeconcern.W1() // the first of two commits: see durably
	reads     = readconcern.Majority()
	snapshot  = readconcern.Snapshot()
	newest    = readconcern.Linearizable()
	primary   = readpref.Primary()
)

// ClientOptions parses uri and bounds every wait. A commit runs on a ctx that
// cannot be cancelled, so that the client's time-out is its only bound.
func ClientOptions(uri string) (*options.ClientOptions, error) {
	o := options.Client().ApplyURI(uri).
		SetTimeout(ClientTimeout).
		SetServerSelectionTimeout(ClientTimeout).
		SetHeartbeatInterval(heartbeat).
		SetMaxPoolSize(poolMax).
		SetWriteConcern(writes).SetReadConcern(reads).SetReadPreference(primary).
		SetRegistry(Registry())
	if err := o.Validate(); err != nil {
		// Neither the URL nor what its parser says of it: any part of a malformed one may be the password.
		return nil, errors.New("wallet: not a URL of MongoDB (not shown, since it may hold a password): want mongodb://user:password@host:27017/database?replicaSet=rs0")
	}
	return o, nil
}
