package mongolock

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// wire stands between a client and a real server and disturbs the line. It only
// ever acts on findAndModify, so that a connection can always be made and watched.
type wire struct {
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	lose  int           // answers still to lose
	lost  int           // answers lost so far
	drop  int           // requests still to lose on their way to the server
	reset bool          // lose an answer by closing the connection, not by silence
	delay time.Duration // of each answer
}

func newWire(t testing.TB, server string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, server: server}
	w.work.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.set(func(w *wire) { closeAll(w.conns...) })
		w.work.Wait()
	})
	return w
}

// url leads through the wire, and no further: a client that asks the set for its
// members would go past it.
func (w *wire) url() string {
	return "mongodb://" + w.listener.Addr().String() + "/?directConnection=true"
}

func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func (w *wire) loseNext(n int)            { w.set(func(w *wire) { w.lose = n }) }
func (w *wire) delayEach(d time.Duration) { w.set(func(w *wire) { w.delay = d }) }
func (w *wire) lostSoFar() (n int)        { w.set(func(w *wire) { n = w.lost }); return n }

func closeAll(conns ...net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			closeAll(client)
			continue
		}
		w.set(func(w *wire) { w.conns = append(w.conns, client, server) })
		l := &line{wire: w, fate: map[uint32]fate{}}
		end := func() { closeAll(client, server) }
		w.work.Go(func() { defer end(); carry(client, server, l.request) })
		w.work.Go(func() { defer end(); carry(server, client, l.answer) })
	}
}

// fate is what becomes of the answer to a request about a lock.
type fate int

const (
	delayed fate = iota + 1
	unheard
	broken
)

// line is one connection, and the requests under way on it.
type line struct {
	*wire
	mu   sync.Mutex
	fate map[uint32]fate
}

// request decides on a message to the server: false loses it.
func (l *line) request(message []byte) (pass, on bool) {
	if !aboutLock(message) {
		return true, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := false
	l.set(func(w *wire) {
		f := delayed
		switch {
		case w.drop > 0:
			w.drop--
			dropped = true
		case w.lose > 0 && w.reset:
			w.lose--
			f = broken
		case w.lose > 0:
			w.lose--
			f = unheard
		}
		l.fate[binary.LittleEndian.Uint32(message[4:])] = f
	})
	return !dropped, true
}

// answer decides on a message to the client.
func (l *line) answer(message []byte) (pass, on bool) {
	l.mu.Lock()
	f := l.fate[binary.LittleEndian.Uint32(message[8:])]
	l.mu.Unlock()
	switch f {
	case delayed:
		var d time.Duration
		l.set(func(w *wire) { d = w.delay })
		<-time.After(d)
	case unheard, broken:
		l.set(func(w *wire) { w.lost++ })
		return false, f == unheard
	}
	return true, true
}

// aboutLock tells a message whose command is findAndModify: it comes first, after
// the head, the flags, the kind of section and the length of the document.
func aboutLock(message []byte) bool {
	const opMsg, commandAt = 2013, 16 + 4 + 1 + 4 + 1
	return len(message) > commandAt && binary.LittleEndian.Uint32(message[12:]) == opMsg &&
		bytes.HasPrefix(message[commandAt:], []byte("findAndModify\x00"))
}

// carry copies the messages that decide lets pass, as long as it says so.
func carry(from io.Reader, to io.Writer, decide func([]byte) (pass, on bool)) {
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		message := append(head, make([]byte, binary.LittleEndian.Uint32(head)-4)...)
		if _, err := io.ReadFull(from, message[4:]); err != nil {
			return
		}
		pass, on := decide(message)
		if !on {
			return
		}
		if !pass {
			continue
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}
