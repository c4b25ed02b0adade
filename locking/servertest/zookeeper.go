// SPDX-License-Identifier: MIT

package servertest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartZooKeeper starts a ZooKeeper of n members. The shortest timeout of a session is 2 s.
func StartZooKeeper(t testing.TB, n int) []*Server {
	t.Helper()
	jars := zookeeperJars(t)
	p := Program{
		Name: "java", Env: "SHOP_JAVA", Ready: zookeeperReady,
		Args: func(s *Server) []string {
			return []string{
				"-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // quick to start
				"-XX:-UsePerfData", "-Djava.io.tmpdir=" + s.Dir, // no file outside the folder
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
				"-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", zookeeperSettings(s),
			}
		},
	}
	var all []*Server
	var ensemble []string
	for i := range n {
		s := NewServer(t, p)
		_, election, _ := net.SplitHostPort(FreeAddr(t))
		all, ensemble = append(all, s), append(ensemble, fmt.Sprintf("server.%d=%s:%s", i+1, FreeAddr(t), election))
	}
	for i, s := range all {
		s.configureZooKeeper(i+1, ensemble)
		s.Spawn()
	}
	for _, s := range all {
		s.Await()
	}
	return all
}

// zookeeperJars is the class path of the server. Debian keeps the libraries of all programs in one
// folder, Homebrew those of ZooKeeper in its own.
func zookeeperJars(t testing.TB) string {
	t.Helper()
	var jars []string
	missing := func(jar string) bool { _, err := os.Stat(jar); return err != nil }
	for _, name := range []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"} {
		jars = append(jars, filepath.Join("/usr/share/java", name+".jar"))
	}
	if !slices.ContainsFunc(jars, missing) {
		return strings.Join(jars, ":")
	}
	for _, dir := range []string{"/opt/homebrew/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, "zookeeper-[0-9]*.jar")); len(found) > 0 {
			return filepath.Join(dir, "*")
		}
	}
	t.Fatal("this test starts a server of its own: install default-jre-headless and libzookeeper-java, or on macOS openjdk and zookeeper")
	return ""
}

func zookeeperSettings(s *Server) string { return filepath.Join(s.Dir, "zoo.cfg") }

// configureZooKeeper writes the settings of the member with this number. The kernel keeps what a
// killed process has written, so the server need not sync its log.
func (s *Server) configureZooKeeper(number int, ensemble []string) {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	settings := []string{
		"tickTime=1000", "initLimit=30", "syncLimit=3", "maxSessionTimeout=300000", "maxClientCnxns=0",
		"dataDir=" + s.Dir, "clientPortAddress=127.0.0.1", "clientPort=" + port,
		"forceSync=no", "preAllocSize=1024", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
	}
	if len(ensemble) > 1 {
		settings = append(append(settings, "quorumListenOnAllIPs=false"), ensemble...)
	}
	err := os.WriteFile(zookeeperSettings(s), []byte(strings.Join(settings, "\n")+"\n"), 0o600)
	if err = cmp.Or(err, os.WriteFile(filepath.Join(s.Dir, "myid"), []byte(strconv.Itoa(number)), 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

// zookeeperReady checks that a member serves: in an ensemble, when there is a leader. A server that has
// not read its data yet may never reply.
func zookeeperReady(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	state, err := ZooKeeperState(ctx, s.Addr)
	if err == nil && !strings.Contains(state, "\nMode: ") {
		err = fmt.Errorf("zookeeper replies %q", state)
	}
	return err
}

// ZooKeeperState returns what a server reports about itself. It closes the connection after its reply.
func ZooKeeperState(ctx context.Context, addr string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	state, err := io.ReadAll(conn)
	return string(state), err
}
