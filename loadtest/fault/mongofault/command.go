package mongofault

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command sends one command to one member, on a connection of its own, and waits
// for as long as ctx allows. A driver would look for another member.
func command(ctx context.Context, addr, database string, c bson.D) (bson.Raw, error) {
	m, err := newMessage(append(c[:len(c):len(c)], bson.E{Key: "$db", Value: database}))
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err = conn.Write(m); err == nil {
		m, err = read(bufio.NewReader(conn), nil)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", addr, c[0].Key, err)
	}
	answer := m.body()
	if code, text := refusalOf(answer); code != 0 {
		return answer, fmt.Errorf("%s refuses %s: %d %s", addr, c[0].Key, code, text)
	}
	return answer, nil
}

// refusalOf says why an answer is an error; 0: it is none. What a write concern
// has to say comes behind the deed, and is no refusal.
func refusalOf(answer bson.Raw) (code int64, text string) {
	why := answer
	if ok, _ := answer.Lookup("ok").AsInt64OK(); ok == 1 {
		all, _ := answer.Lookup("writeErrors").ArrayOK()
		first, err := all.IndexErr(0)
		if err != nil {
			return 0, ""
		}
		why, _ = first.DocumentOK()
	}
	code, _ = why.Lookup("code").AsInt64OK()
	text, _ = why.Lookup("errmsg").StringValueOK()
	return cmp.Or(code, -1), text
}
