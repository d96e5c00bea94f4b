/* Runs a network in ns-3 and logs its events.
 *
 *   host i --access-- node --link-- node .. --access-- host j          one way; the way back has nodes of its own
 *
 * usage: driver INPUT FOLDER
 *
 * INPUT is what `network.rs` writes, a line for each thing:
 *
 *   seed SEED RUN                                  of ns-3's random numbers
 *   stop NS NS                                     end of the simulation: the earliest, and the latest if answers to
 *                                                  requests are outstanding
 *   default ATTRIBUTE VALUE                        of all objects, such as ns3::TcpSocket::SegmentSize
 *   link FROM TO BIT/S DELAY_NS LOSS               links are numbered from 0, in this order
 *   qdisc TYPE [ATTRIBUTE VALUE]..                 of the last link; QUANTUM is no attribute, but set like one
 *   change NS rate|delay|loss VALUE                of the last link; bit/s, ns, share
 *   tcp PAIR START_NS STOP_NS DATA_NS BACK_NS DATA BACK SEGMENTS TOS TYPE
 *                                                  a flow that always has data: how long its packets and its
 *                                                  acknowledgements take to the first of the links DATA and BACK
 *                                                  (numbers with commas), its initial window, its algorithm
 *   udp PAIR STOP_NS DATA_NS BACK_NS DATA BACK PAYLOAD TOS
 *   send NS                                        a datagram of the last udp
 *   requests PAIR STOP_NS DATA_NS BACK_NS DATA BACK SEGMENTS TOS TYPE
 *   ask NS BYTES                                   an answer of the last requests, over a connection of its own that
 *                                                  its receiver opens
 *
 * FOLDER/events has a line for each event, in order of time: a letter, the number of the flow or link, the time (ns):
 *
 *   w FLOW NS BYTES       window                   s FLOW NS SEQUENCE BYTES   segment sent
 *   f FLOW NS BYTES       bytes in flight          d FLOW NS SEQUENCE BYTES   segment arrived
 *   r FLOW NS NS          smoothed round trip      a FLOW NS SEQUENCE         acknowledged up to here
 *   t FLOW NS             timeout                  b FLOW NS, e FLOW NS       a recovery begins, ends
 *   x FLOW NS, y FLOW NS  datagram sent, arrived   p FLOW NS BYTES            written by the application until now
 *   c FLOW NS NUMBER      connection requested     g FLOW NS NUMBER           answer complete
 *   v FLOW NS BYTES       read of an answer
 *   q LINK NS PACKETS     length of the qdisc      o LINK NS NS               left the qdisc after this time
 *   l LINK NS             lost on the wire         k LINK NS                  left the link
 *   n LINK NS COUNT REASON, m LINK NS COUNT REASON   at the end: drops and marks of the qdisc by reason
 *   z 0 NS                the end
 *
 * FOLDER/packets-LINK has a record for each packet of a link (core/src/record/packets.rs). Progress in percent goes to
 * stdout.
 */
#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "flow.h"

namespace
{

/* Everything to simulate, as read from the input. */
struct Input
{
    Time stop;
    std::vector<std::unique_ptr<Link>> links;
    std::vector<std::unique_ptr<Flow>> flows;
};

template <typename T>
T
Next(std::istringstream& line)
{
    T value;
    if (!(line >> value))
    {
        Refuse("not understood: " + line.str());
    }
    return value;
}

Time
NextTime(std::istringstream& line)
{
    return NanoSeconds(Next<int64_t>(line));
}

std::vector<uint32_t>
NextNumbers(std::istringstream& line, size_t count)
{
    std::vector<uint32_t> numbers;
    std::istringstream list(Next<std::string>(line));
    for (std::string part; std::getline(list, part, ',');)
    {
        numbers.push_back(uint32_t(std::stoul(part)));
        if (numbers.back() >= count)
        {
            Refuse("no such link: " + line.str());
        }
    }
    return numbers;
}

void
ReadLink(std::istringstream& line, Input& input)
{
    auto link = std::make_unique<Link>();
    link->number = uint32_t(input.links.size());
    link->from = Next<uint32_t>(line);
    link->to = Next<uint32_t>(line);
    link->rate = Next<std::string>(line) + "bps";
    link->delay = NextTime(line);
    link->loss = Next<double>(line);
    input.links.push_back(std::move(link));
}

void
ReadFlow(std::istringstream& line, Kind kind, Input& input)
{
    auto flow = std::make_unique<Flow>();
    bool isTcp = kind != Kind::DATAGRAMS;
    flow->kind = kind;
    flow->number = uint32_t(input.flows.size());
    flow->pair = Next<uint16_t>(line);
    flow->start = kind == Kind::GREEDY ? NextTime(line) : Time(0);
    flow->stop = NextTime(line);
    flow->dataDelay = NextTime(line);
    flow->backDelay = NextTime(line);
    flow->data = NextNumbers(line, input.links.size());
    flow->back = NextNumbers(line, input.links.size());
    (isTcp ? flow->segments : flow->payload) = Next<uint32_t>(line);
    flow->tos = uint8_t(Next<uint32_t>(line));
    flow->algorithm = isTcp ? Next<std::string>(line) : "";
    input.flows.push_back(std::move(flow));
}

Input
Read(const std::string& path)
{
    std::ifstream file(path);
    Input input;
    for (std::string text; std::getline(file, text);)
    {
        std::istringstream line(text);
        std::string what = Next<std::string>(line);
        if (what == "seed")
        {
            RngSeedManager::SetSeed(Next<uint32_t>(line));
            RngSeedManager::SetRun(Next<uint64_t>(line));
        }
        else if (what == "stop")
        {
            g_earliestEnd = NextTime(line);
            input.stop = NextTime(line);
        }
        else if (what == "default")
        {
            std::string name = Next<std::string>(line);
            Config::SetDefault(name, StringValue(Next<std::string>(line)));
        }
        else if (what == "link")
        {
            ReadLink(line, input);
        }
        else if (what == "qdisc" && !input.links.empty())
        {
            Link& link = *input.links.back();
            link.qdisc = Next<std::string>(line);
            for (std::string name; line >> name;)
            {
                link.attributes.emplace_back(name, Next<std::string>(line));
            }
        }
        else if (what == "change" && !input.links.empty())
        {
            Change change;
            change.at = NextTime(line);
            change.what = Next<std::string>(line);
            change.value = Next<std::string>(line);
            input.links.back()->changes.push_back(change);
        }
        else if (what == "tcp" || what == "udp" || what == "requests")
        {
            Kind kind = what == "tcp" ? Kind::GREEDY
                                      : (what == "udp" ? Kind::DATAGRAMS : Kind::REQUESTS);
            ReadFlow(line, kind, input);
        }
        else if ((what == "send" || what == "ask") && !input.flows.empty())
        {
            Flow& flow = *input.flows.back();
            flow.timesNs.push_back(Next<uint64_t>(line));
            flow.sizes.push_back(what == "ask" ? Next<uint64_t>(line) : 0);
        }
        else
        {
            Refuse("not understood: " + text);
        }
    }
    return input;
}

void
Progress(Time step, uint32_t percent)
{
    std::printf("%" PRIu32 "\n", std::min(percent, 100U));
    std::fflush(stdout);
    Simulator::Schedule(step, &Progress, step, percent + 1);
}

void
Run(Input input, const std::string& folder)
{
    g_events = CreateFile(folder + "/events");
    uint32_t last = 0;
    for (const auto& link : input.links)
    {
        last = std::max({last, link->from, link->to});
    }
    NodeContainer nodes(last + 1);
    InternetStackHelper().Install(nodes);
    for (const auto& link : input.links)
    {
        link->Install(folder, nodes.Get(link->from), nodes.Get(link->to));
    }
    for (const auto& flow : input.flows)
    {
        flow->Install(input.links, nodes);
    }
    Simulator::Schedule(g_earliestEnd, &EndIfDone);
    Time step = g_earliestEnd / int64_t(100);
    Simulator::Schedule(step, &Progress, step, 1);
    Simulator::Stop(input.stop);
    Simulator::Run();
    for (const auto& link : input.links)
    {
        link->Finish();
    }
    Tell('z', 0);
    CloseFile(g_events);
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 3)
    {
        Refuse("usage: driver INPUT FOLDER");
    }
    Run(Read(argv[1]), argv[2]);
    return 0;
}
