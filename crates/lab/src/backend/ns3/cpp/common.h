/* Output shared by all parts of the driver, and the links of hosts. */
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{

constexpr uint16_t PORT = 5000;
constexpr uint32_t PPP_BYTES = 2;
constexpr uint32_t REQUEST_BYTES = 16;
/* An Ethernet frame of 1514 bytes is one of 1512 bytes of IP behind PPP. */
constexpr uint16_t MTU = 1514;
const std::string ACCESS_RATE = "10Gbps";
const std::string DEEP = "1000000p";

FILE* g_events = nullptr;
/* The earliest end of the simulation, and the number of outstanding answers, which delay it. */
Time g_earliestEnd;
uint64_t g_awaited = 0;
/* Pairs of sites by the addresses of their hosts. */
std::unordered_map<uint32_t, uint16_t> g_pairs;

[[noreturn]] void
Refuse(const std::string& what)
{
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(2);
}

FILE*
CreateFile(const std::string& path)
{
    FILE* file = std::fopen(path.c_str(), "wb");
    if (!file)
    {
        Refuse(path + ": cannot be written");
    }
    return file;
}

void
CloseFile(FILE* file)
{
    // A full disk must not look like a short run.
    if (std::ferror(file) || std::fclose(file) != 0)
    {
        Refuse("the disk is full");
    }
}

uint64_t
NowNs()
{
    return uint64_t(Simulator::Now().GetNanoSeconds());
}

void
Tell(char kind, uint32_t of)
{
    std::fprintf(g_events, "%c %" PRIu32 " %" PRIu64 "\n", kind, of, NowNs());
}

void
Tell(char kind, uint32_t of, uint64_t value)
{
    std::fprintf(g_events, "%c %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", kind, of, NowNs(), value);
}

void
Tell(char kind, uint32_t of, uint64_t value, uint64_t other)
{
    std::fprintf(g_events,
                 "%c %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                 kind,
                 of,
                 NowNs(),
                 value,
                 other);
}

void
EndIfDone()
{
    if (g_awaited == 0 && Simulator::Now() >= g_earliestEnd)
    {
        Simulator::Stop();
    }
}

/* A link between two nodes without an observer: of a host, or of a Link. */
NetDeviceContainer
Connect(Ptr<Node> from, Ptr<Node> to, const std::string& rate, Time delay, const std::string& queue)
{
    static Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    PointToPointHelper helper;
    helper.SetDeviceAttribute("DataRate", StringValue(rate));
    helper.SetDeviceAttribute("Mtu", UintegerValue(MTU));
    helper.SetChannelAttribute("Delay", TimeValue(delay));
    helper.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(queue));
    NetDeviceContainer devices = helper.Install(from, to);
    addresses.Assign(devices);
    // Assign installs a qdisc of its own.
    TrafficControlHelper().Uninstall(devices);
    addresses.NewNetwork();
    return devices;
}

Ipv4Address
AddressOf(Ptr<NetDevice> device)
{
    Ptr<Ipv4> ip = device->GetNode()->GetObject<Ipv4>();
    return ip->GetAddress(uint32_t(ip->GetInterfaceForDevice(device)), 0).GetLocal();
}

/* Packets to `address` leave by `device`. */
void
Route(Ipv4Address address, Ptr<NetDevice> device)
{
    Ptr<Ipv4> ip = device->GetNode()->GetObject<Ipv4>();
    Ipv4StaticRoutingHelper().GetStaticRouting(ip)->AddHostRouteTo(
        address,
        uint32_t(ip->GetInterfaceForDevice(device)));
}

} // namespace
