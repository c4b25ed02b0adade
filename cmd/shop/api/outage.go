package api

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// passing says whether an error of PostgreSQL is an outage, which another
// request may not meet, and not a bug or a wrong setting.
func passing(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "08") || // connection exception
			strings.HasPrefix(pg.Code, "53") || // insufficient resources, such as connections
			strings.HasPrefix(pg.Code, "57") || // operator intervention: shutdown, starting up, canceled by a timeout
			pg.Code == "55P03" // lock_not_available
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
