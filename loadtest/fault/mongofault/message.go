package mongofault

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// message is one of MongoDB's protocol, as it came:
//
//	length · its id · the id of what it answers · opcode    4 bytes each
//	flags · 0 · a document [· 1 · length · name · documents]…    where the opcode is OP_MSG
type message []byte

const (
	opMsg      = 2013
	headLength = 16
	bodyAt     = headLength + 4 + 1
	lengthMax  = 64 << 20 // a greater one is no message, but nonsense
	bufferSize = 64 << 10
)

var errNonsense = errors.New("not the protocol of MongoDB")

func (m message) id() uint32      { return binary.LittleEndian.Uint32(m[4:]) }
func (m message) answers() uint32 { return binary.LittleEndian.Uint32(m[8:]) }

// body is the document of an OP_MSG; nil: it is something else, such as the
// greeting. Drivers put it in front of the other sections.
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

// newMessage is a command to the server.
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
