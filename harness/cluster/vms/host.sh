# Makes a guest the host that the lines before this one describe, then runs its SSH server. Process 1 of the guest.
#   NAME                 its name
#   FOLDER               the cluster's, with keys and configurations
#   MODULES, RELEASE     the modules of its kernel
#   nics                 a function that calls `nic NAME MAC ADDRESS/PREFIX MTU [TC WORDS...]` for each NIC
#   MANAGEMENT_ALIAS     of its management NIC, by which programs know that it is no data NIC
#   RDMA                 rxe, or nothing
#   FILES                those of the cluster's folder that go to /etc
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/guest
export PATH
/run/guest/busybox --install -s /run/guest
hostname "$NAME"
mkdir -p /dev/pts /dev/shm /lib/modules /run/sshd /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
ln -sfn "$MODULES" "/lib/modules/$RELEASE"
echo /run/guest/modprobe >/proc/sys/kernel/modprobe
if [ ! -e /var/lib/r2ccl-guest ]; then # not a later boot of a guest that has a disk
    for file in $FILES; do
        cp "$FOLDER/$file" "/etc/$file"
    done
    touch /var/lib/r2ccl-guest
fi
rm -f /.dockerenv # where this machine is a container, the guest is none
printf '#!/run/guest/sh\n[ "$1" = reboot ] && exec /run/guest/reboot -f\nexit 1\n' >/usr/local/sbin/systemctl
chmod +x /usr/local/sbin/systemctl # no systemd runs here, but a restart is to be had as everywhere

named() { # named MAC: the interface that has it
    for folder in /sys/class/net/*; do
        [ "$(cat "$folder/address")" = "$1" ] && basename "$folder" && return
    done
    echo "r2ccl: no NIC has $1" >&2
}
nic() {
    name=$1 mac=$2 address=$3 mtu=$4
    shift 4
    ip link set dev "$(named "$mac")" name "$name"
    ip link set dev "$name" mtu "$mtu"
    ip addr add "$address" dev "$name"
    [ "$name" != mgmt0 ] || ip link set dev "$name" alias "$MANAGEMENT_ALIAS"
    [ $# -eq 0 ] || tc qdisc add dev "$name" root "$@"
    ip link set dev "$name" up
    [ -z "$RDMA" ] || [ "$name" = mgmt0 ] || rdma link add "$RDMA${name#eth}" type "$RDMA" netdev "$name"
}
ip link set dev lo up
for folder in /sys/class/net/eth*; do # out of the way of each other's names
    ip link set dev "${folder##*/}" name "x${folder##*/}"
done
[ -z "$RDMA" ] || modprobe "rdma_$RDMA"
sysctls
nics
[ ! -x /etc/rc.local ] || /etc/rc.local
echo "r2ccl: $NAME is up after $(cut -d ' ' -f 1 /proc/uptime) s"
ulimit -l unlimited # what RDMA registers is locked
# Not process 1: that one adopts what loses its parent, and ends the machine when it ends.
while :; do
    /usr/sbin/sshd -D -e -f "$FOLDER/$NAME.conf" 2>/dev/console
    sleep 1
done
