// SPDX-License-Identifier: MIT

package mongofault

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// message is a message of MongoDB's protocol, byte for byte:
//
//	length · its id · the id of the request that it answers · opcode    4 bytes each
//	flags · 0 · a document [· 1 · length · name · documents]…    if the opcode is OP_MSG
type message []byte

const (
	opMsg      = 2013
	headLength = 16
	bodyAt     = headLength + 4 + 1
	lengthMax  = 64 << 20 // a larger length is not the protocol
	bufferSize = 64 << 10
)

var errNonsense = errors.New("not the MongoDB protocol")

func (m message) id() uint32      { return binary.LittleEndian.Uint32(m[4:]) }
func (m message) answers() uint32 { return binary.LittleEndian.Uint32(m[8:]) }

// body returns the document of an OP_MSG; nil: the message is something else, such as the
// handshake. Drivers put the document before the other sections.
func (m message) body() bson.Raw {
	if len(m) < bodyAt+4 || binary.LittleEndian.Uint32(m[12:]) != opMsg || m[bodyAt-1] != 0 {
		return nil
	}
	size := int(binary.LittleEndian.Uint32(m[bodyAt:]))
	if size < 5 || size > len(m)-bodyAt {
		return nil
	}
	return bson.Raw(m[bodyAt : bodyAt+size])
}

// first returns the first document of an insert, which is in the body or in a section after
// it; nil: none.
func (m message) first() bson.Raw {
	body := m.body()
	if all, ok := body.Lookup("documents").ArrayOK(); ok {
		one, _ := all.IndexErr(0)
		document, _ := one.DocumentOK()
		return document
	}
	rest := m[min(len(m), bodyAt+len(body)):]
	if len(body) == 0 || len(rest) < 5 || rest[0] != 1 {
		return nil
	}
	_, documents, _ := bytes.Cut(rest[5:], []byte{0}) // after the name
	if all := documentsIn(documents); len(all) > 0 {
		return all[0]
	}
	return nil
}

// read reads one message, into buf if it is large enough.
func read(r *bufio.Reader, buf message) (message, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size := int(binary.LittleEndian.Uint32(head))
	if size < headLength || size > lengthMax {
		return nil, errNonsense
	}
	if cap(buf) < size {
		buf = make(message, size)
	}
	buf = buf[:size]
	_, err = io.ReadFull(r, buf)
	return buf, err
}

// newMessage encodes a command to the server.
func newMessage(command bson.D) (message, error) {
	body, err := bson.Marshal(command)
	if err != nil {
		return nil, err
	}
	m := make(message, bodyAt, bodyAt+len(body))
	binary.LittleEndian.PutUint32(m, uint32(bodyAt+len(body)))
	binary.LittleEndian.PutUint32(m[12:], opMsg)
	return append(m, body...), nil
}

// command sends one command to one member on a new connection, and waits for the
// answer until ctx ends. A driver would look for another member.
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
		return nil, fmt.Errorf("%s on %s: %w", c[0].Key, addr, err)
	}
	answer := m.body()
	if code, text := refusalOf(answer); code != 0 {
		return answer, fmt.Errorf("%s on %s: error %d: %s", c[0].Key, addr, code, text)
	}
	return answer, nil
}

// refusalOf returns the error code and message of an answer; 0: the command succeeded. A
// write concern error is not a refusal, since the command has been executed.
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
