// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ZooKeeper is a ZooKeeper of this many members, with a small heap.
func ZooKeeper(members int) Kind {
	return Kind{
		Name: "zookeeper", File: "java", Members: members,
		Ports: 3, // clients, members, elections
		Users: []string{"nobody"},
		Setup: zookeeperSetup, Argv: zookeeperArgs, Ready: zookeeperReady, URL: (*Instance).Addresses,
	}
}

// ZooKeeperJars returns the class path of the server; empty: not all of it is installed. Debian keeps the
// libraries of all programs in one folder, Homebrew those of ZooKeeper in its own.
func ZooKeeperJars() string {
	var jars []string
	for _, name := range []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"} {
		jars = append(jars, filepath.Join("/usr/share/java", name+".jar"))
	}
	if !slices.ContainsFunc(jars, func(jar string) bool { _, err := os.Stat(jar); return err != nil }) {
		return strings.Join(jars, ":")
	}
	for _, dir := range []string{"/opt/homebrew/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, "zookeeper-[0-9]*.jar")); len(found) > 0 {
			return filepath.Join(dir, "*")
		}
	}
	return ""
}

// zookeeperSetup writes the settings. A tick of a second makes the shortest session timeout 2 s. The
// kernel keeps what a killed process has written, so the server need not sync its log.
func zookeeperSetup(_ context.Context, i *Instance) error {
	settings := []string{
		"tickTime=1000", "initLimit=30", "syncLimit=3", "maxSessionTimeout=300000", "maxClientCnxns=0",
		"dataDir=" + i.Dir, "clientPortAddress=127.0.0.1", "clientPort=" + strconv.Itoa(i.Ports[0]),
		"forceSync=no", "preAllocSize=1024", "admin.enableServer=false", "4lw.commands.whitelist=envi,srvr",
	}
	if len(i.Cluster) > 1 {
		settings = append(settings, "quorumListenOnAllIPs=false")
		for n, m := range i.Cluster {
			settings = append(settings, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", n+1, m.Ports[1], m.Ports[2]))
		}
		if err := i.Write(filepath.Join(i.Dir, "myid"), strconv.Itoa(slices.Index(i.Cluster, i)+1)); err != nil {
			return err
		}
	}
	return i.Write(zookeeperSettings(i), strings.Join(settings, "\n")+"\n")
}

func zookeeperSettings(i *Instance) string { return filepath.Join(i.Dir, "zoo.cfg") }

func zookeeperArgs(i *Instance) []string {
	return []string{
		"-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // quick to start
		"-XX:-UsePerfData", "-Djava.io.tmpdir=" + i.Dir, // no file outside the folder
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", ZooKeeperJars(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", zookeeperSettings(i),
	}
}

// zookeeperReady checks that the process on the port is this member, by its folder, and that it serves: a
// member of an ensemble does so when there is a leader. A server that has not read its data yet may never reply.
func zookeeperReady(ctx context.Context, i *Instance) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	environment, err := ZooKeeperAsk(ctx, i.Addr(), "envi")
	if err != nil {
		return err
	}
	if !strings.Contains(environment, "\nuser.dir="+RealPath(i.Dir)+"\n") {
		return fmt.Errorf("a foreign ZooKeeper listens on %s", i.Addr())
	}
	state, err := ZooKeeperAsk(ctx, i.Addr(), "srvr")
	if err == nil && !strings.Contains(state, "\nMode: ") {
		err = fmt.Errorf("zookeeper replies %q", state)
	}
	return err
}

// ZooKeeperAsk sends a command of four letters. The server closes the connection after its reply.
func ZooKeeperAsk(ctx context.Context, addr, command string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	return string(reply), err
}
